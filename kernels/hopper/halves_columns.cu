// Makes halves of a matrix that is stored transposed: its rows are columns in memory, and become rows on the way. A block takes
// a strip of 32 of them, 128 bytes wide, and goes down it twice: for the largest numbers, and for the halves.
#include "../ceiling.h"
#include "../cuda/launch.cuh"
#include "halves_split.cuh"

namespace tailor::hopper {
namespace {

constexpr int strip = 32;  // rows of the result
constexpr int warps = 32;
constexpr int depth = 32 * packet;  // of a piece that is turned in shared memory: a packet for each lane
constexpr int lines = depth / warps;

struct Turning {
  float at[depth][strip + 1];  // one more, and neither rows nor columns meet in a bank
  std::uint32_t largest[warps][strip];
};

__global__ void __launch_bounds__(32 * warps) split_columns(const __grid_constant__ Halves halves, bool is_weight) {
  cuda::wait_for_kernel_before();
  __shared__ Turning shared;
  const SplitMatrix& matrix = is_weight ? halves.weight : halves.x;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * strip;
  const bool is_there = first + lane < matrix.rows;
  const float* const from = matrix.from + first + lane;
  const auto read_line = [&](int k) { return is_there && k < halves.inner ? from[k * matrix.stride] : 0.0f; };

  std::uint32_t most = 0;
#pragma unroll 8
  for (int k = warp; k < halves.inner; k += warps) most = max(most, __float_as_uint(read_line(k)) & 0x7fffffffu);
  shared.largest[warp][lane] = most;
  __syncthreads();
  // From here on a warp has a row.
  const std::uint32_t largest = __reduce_max_sync(~0u, shared.largest[lane][warp]);
  const Scale scale(largest);
  auto* const high = static_cast<__half*>(matrix.halves) + (first + warp) * 2 * halves.padded;
  Found found;
  for (int piece = 0; piece < halves.padded; piece += depth) {
    float values[lines];
#pragma unroll
    for (int i = 0; i < lines; ++i) values[i] = read_line(piece + i * warps + warp);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < lines; ++i) shared.at[i * warps + warp][lane] = values[i];
    __syncthreads();
    const int column = lane * packet;
    if (first + warp >= matrix.rows || piece + column >= halves.padded) continue;
    Values turned;
#pragma unroll
    for (int i = 0; i < packet; ++i) turned.at[i] = scale.usable ? shared.at[column + i][warp] : 0.0f;
    split(turned, scale.up, high + piece + column, high + halves.padded + piece + column, found);
  }
  gather(found);
  if (lane == 0 && first + warp < matrix.rows) matrix.facts[first + warp] = facts_from(found, largest, scale);
}

}  // namespace

const char* split_by_columns(const Halves& halves, cudaStream_t stream) {
  for (const bool is_weight : {false, true}) {
    const SplitMatrix& matrix = is_weight ? halves.weight : halves.x;
    if (matrix.rows == 0) continue;
    cuda::launch<split_columns>(cuda::grid_of(ceiling(matrix.rows, strip), 1), 32 * warps, stream, halves, is_weight);
  }
  return cuda::launch_error();
}

}  // namespace tailor::hopper
