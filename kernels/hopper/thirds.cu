// Makes thirds of x: a cluster has eight rows, a block of it a part of their numbers.
#include "thirds.h"

#include "../cuda/launch.cuh"
#include "again.cuh"
#include "thirds_split.cuh"

namespace tailor::hopper {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int rows_together = 8;  // 16 bytes of each lie one after another
constexpr int unit = 16;          // numbers that a thread takes at a time: what a matrix instruction takes of a row
constexpr int units_at_once = threads / rows_together;

constexpr std::uint32_t infinite = 0x7f800000u;
// A row's largest number becomes 2^60, so that the others may be 2^-169 of it and still have three whole thirds, and a weight's
// numbers up to 2^50 without a sum leaving float's range.
constexpr int top_exponent = 60;
constexpr int most_up = 120;  // and 2^most_up and one over it are floats
// A scaled number of at least that much times any of the weight whose thirds lost nothing, be it 2^-133, is exact in float.
constexpr float small = 0x1p16f;
// What thirds of small numbers lose, and products of theirs, over the share of a result that may be lost.
constexpr float lost_of_small = 0x1p-107f;

// The magnitudes of a row, as bits, which are in the same order: the largest, and the least but for zeros, less one.
struct Extent {
  std::uint32_t largest = 0;
  std::uint32_t least = ~0u;

  __device__ __forceinline__ void look_at(float value) {
    const std::uint32_t magnitude = __float_as_uint(value) & 0x7fffffffu;
    join(magnitude, magnitude - 1);
  }
  __device__ __forceinline__ void join(std::uint32_t other_largest, std::uint32_t other_least) {
    largest = max(largest, other_largest);
    least = min(least, other_least);
  }
};

struct Split {
  const Thirds& thirds;
  const int part = rank_in_cluster();
  const int parts = blocks_in_cluster();
  const int row = static_cast<int>(blockIdx.x) / parts * rows_together + static_cast<int>(threadIdx.x) % rows_together;
  const bool is_there = row < thirds.x.rows;
  const int units = thirds.steps() * (thirds_step / unit);
  const int first = units * part / parts + static_cast<int>(threadIdx.x) / rows_together;
  const int last = units * (part + 1) / parts;

  __device__ __forceinline__ Columns<float, 4> read(int which, int four) const {
    return is_there ? read_columns<4>(thirds.x, row, which * unit + four * 4, thirds.inner) : Columns<float, 4>{};
  }

  __device__ __forceinline__ Extent look() const {
    Extent extent;
    for (int at = first; at < last; at += units_at_once) {
#pragma unroll
      for (int four = 0; four < unit / 4; ++four) {
        const Columns<float, 4> values = read(at, four);
#pragma unroll
        for (float value : values.at) extent.look_at(value);
      }
    }
    return extent;
  }

  // Over the warp, the block, the cluster.
  __device__ __forceinline__ void gather(Extent& extent) const {
    __shared__ uint2 of_warps[warps][rows_together];
    __shared__ uint2 of_block[rows_together];
    const int at = static_cast<int>(threadIdx.x) % rows_together;
    for (int other = rows_together; other < 32; other *= 2)
      extent.join(__shfl_xor_sync(~0u, extent.largest, other), __shfl_xor_sync(~0u, extent.least, other));
    of_warps[threadIdx.x / 32][at] = {extent.largest, extent.least};
    __syncthreads();
    for (const auto& of_warp : of_warps) extent.join(of_warp[at].x, of_warp[at].y);
    of_block[at] = {extent.largest, extent.least};
    meet_cluster();
    for (int block = 0; block < parts; ++block) {
      const float2 other = read_pair_of(block, address_of(&of_block[at]));
      extent.join(__float_as_uint(other.x), __float_as_uint(other.y));
    }
  }

  __device__ __forceinline__ void write(float scale) const {
    const int piece_bytes = 16 * thirds.tile_rows;  // eight numbers of each row, one third
    auto* const tile = static_cast<unsigned char*>(thirds.blocks) +
                       row / thirds.tile_rows * (thirds.steps() * thirds.block_bytes()) + row % thirds.tile_rows * 16;
    for (int at = first; at < last; at += units_at_once) {
      std::uint32_t pairs[3][2][4];
#pragma unroll
      for (int four = 0; four < unit / 4; ++four) {
        const Columns<float, 4> values = read(at, four);
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          std::uint32_t of_pair[3];
          std::uint32_t rest = 0;
          split_pair(values.at[2 * pair] * scale, values.at[2 * pair + 1] * scale, of_pair, rest);
#pragma unroll
          for (int i = 0; i < 3; ++i) pairs[i][pair][four] = of_pair[i];
        }
      }
      auto* const to = tile + at / 2 * thirds.block_bytes() + at % 2 * 2 * 3 * piece_bytes;
#pragma unroll
      for (int i = 0; i < 3; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<uint4*>(to + (3 * half + i) * piece_bytes) = reinterpret_cast<const uint4&>(pairs[i][half]);
      }
    }
  }
};

__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(static_cast<std::uint32_t>(127 + exponent) << 23);
}

__global__ void __launch_bounds__(threads) split_into_thirds(const __grid_constant__ Thirds thirds) {
  cuda::wait_for_kernel_before();
  cuda::let_kernel_after_begin();
  const Split split{thirds};
  Extent extent = split.look();
  split.gather(extent);
  const int exponent = static_cast<int>(extent.largest >> 23) - 127;
  const int up = extent.largest < infinite ? min(top_exponent - exponent, most_up) : 0;
  const float scale = power_of_two(up);
  if (threadIdx.x < rows_together && split.part == 0 && split.is_there) {
    const bool has_small = __uint_as_float(extent.least + 1) * scale < small;
    thirds.facts[split.row] = {power_of_two(-up), has_small ? static_cast<float>(thirds.inner) * lost_of_small : 0.0f,
                               extent.largest == 0, extent.largest > infinite};
  }
  split.write(scale);
  meet_to_leave();  // nobody leaves while another reads what he has found
}

}  // namespace

std::int64_t place_thirds(Thirds& thirds, void* place) {
  const std::int64_t of_blocks = whole_places(thirds.tiles() * thirds.steps() * thirds.block_bytes());
  if (place != nullptr) {
    thirds.blocks = place;
    thirds.facts = reinterpret_cast<RowOfX*>(static_cast<char*>(place) + of_blocks);
  }
  return of_blocks + whole_places(thirds.x.rows * static_cast<std::int64_t>(sizeof(RowOfX)));
}

const char* make_thirds(const Thirds& thirds, void* stream) {
  constexpr int most_parts = 8;
  constexpr int of_part = 1024;  // numbers of a row
  int parts = 1;
  while (parts < most_parts && parts * of_part < thirds.inner) parts *= 2;
  // Rows that fill the last tile up are left as they are: nobody looks at what comes of them.
  const std::int64_t blocks = ceiling(thirds.x.rows, rows_together) * parts;
  cuda::launch_with<split_into_thirds>({cuda::grid_of(blocks, 1), threads, 0, parts}, static_cast<cudaStream_t>(stream),
                                       thirds);
  return cuda::launch_error();
}

}  // namespace tailor::hopper
