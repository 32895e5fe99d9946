// Makes halves of matrices that are stored transposed: their rows are columns in memory, and become rows on the way. A cluster takes
// a strip of 32 of them, 128 bytes wide, and each of its blocks a part of the length. A block goes down its part, a chunk at a time in
// shared memory, for the largest numbers, and back up for the halves: the last chunk is still there, and those before it in the L2.
#include "../ceiling.h"
#include "../cuda/launch.cuh"
#include "halves_split.cuh"
#include "maps.h"
#include "ptx.cuh"
#include "shared_halves.h"

namespace tailor::hopper {
namespace {

constexpr int strip = 32;         // rows of the result
constexpr int quads = strip / 4;  // of neighbours in memory; a warp splits one
constexpr int threads = quads * 32;
constexpr int warps = threads / 32;
constexpr int lines_at_once = threads / quads;
constexpr int piece = 32 * packet;  // that a warp splits of its rows at a time: a packet for each lane
constexpr int chunk = 4 * piece;    // three blocks of so many lines are a multiprocessor's shared memory
constexpr int blocks_at_once = 3;
constexpr int most_parts = 8;  // of a cluster, on any GPU
constexpr int more_parts = 16;

struct alignas(16) Quad {
  float at[4];
};

struct Shared {
  Quad at[chunk][quads];
  float weights[chunk];  // of the lines, over `unscale_of_lying`, where they have any
  std::uint32_t largest[warps][strip], most_of_all[strip];
  // Of this block's part, for the others of the cluster.
  alignas(8) std::uint32_t most[strip];
  alignas(8) FoundByAll found[strip];
};

// Of numbers that are multiplied by their line's power of two: they are whole, or not, as they were.
struct Weighed : Plainly {
  static constexpr bool by_length = true;
  const Values& given;
  const float (&weights)[packet];
  __device__ __forceinline__ Weighed(const Values& given, const float (&weights)[packet])
      : given(given), weights(weights) {}
  __device__ __forceinline__ Flags length_of(int i) const { return hopper::length_of(given.at[i]); }
  // The line's power of two may have made it zero already: it was less than 2^-149, and would be scaled by 2^90 at most.
  static_assert(top_exponent - least_exponent < 149 - 35);
  __device__ __forceinline__ bool is_there(int i, float) const { return given.at[i] != 0 && weights[i] != 0; }
};

// `weighs`: where lines have powers of two, by which their numbers are multiplied first.
template <bool aligned, bool weighs>
struct Strip {
  Shared& shared;
  const Halves& halves;
  const SplitMatrix& matrix;
  const std::int64_t first;  // row
  const int part = rank_in_cluster();
  const int parts = blocks_in_cluster();
  const int pieces = static_cast<int>(ceiling(halves.padded, piece));
  const int begin = pieces * part / parts * piece;
  const int end = pieces * (part + 1) / parts * piece;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int my_rows = warp * 4;  // a warp's, in the strip

  // Whether a warp reads lines, or of four lines after another the same quad: no two lanes of eight meet in a bank.
  __device__ __forceinline__ Quad& place(unsigned line, unsigned quad) const {
    return shared.at[line][quad ^ line / packet % quads];
  }
  // A chunk ends where the next begins, and the first may begin before the part does.
  __device__ __forceinline__ int first_line(int from) const { return max(begin - from, 0); }

  // All lines of a chunk are under way at a time.
  __device__ __forceinline__ void load(int from) const {
    const int there = halves.inner - from;  // lines
    const auto rows = [&](int row, int most) {
      return static_cast<int>(min(max(matrix.rows - first - row, std::int64_t{0}), std::int64_t{most}));
    };
    const auto bring = [&](int at, int at_once, int row, auto bring_one) {
      const float* own = matrix.from + (from + at) * matrix.stride + first + row;
      for (int line = at; line < chunk; line += at_once, own += at_once * matrix.stride) bring_one(line, own);
    };
    if constexpr (aligned) {
      const int row = thread % quads * 4;
      const int some = rows(row, 4);
      bring(first_line(from) + thread / quads, lines_at_once, row, [&](int line, const float* own) {
        bring_four(address_of(&place(line, row / 4)), own, line < there ? some : 0);
      });
    } else {
      const bool is_there = rows(lane, 1) > 0;
      bring(first_line(from) + warp, warps, lane, [&](int line, const float* own) {
        bring_number(address_of(&place(line, lane / 4).at[lane % 4]), own, is_there && line < there);
      });
    }
    if constexpr (weighs) {
      for (int line = first_line(from) + thread; line < chunk; line += threads)
        bring_number(address_of(&shared.weights[line]), &halves.lines[min(from + line, halves.inner - 1)].unscale,
                     line < there);
    }
    wait_for_numbers();
    __syncthreads();
  }

  // Of a quad's rows, over some lines of a chunk.
  __device__ __forceinline__ void look_for_largest_of(int from, std::uint32_t (&largest)[4]) const {
    for (int line = first_line(from) + thread / quads; line < chunk; line += lines_at_once) {
      const Quad values = place(line, thread % quads);
      const float weight = weight_of(line);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float value = weighs ? values.at[i] * weight : values.at[i];
        largest[i] = max(largest[i], __float_as_uint(value) & 0x7fffffffu);
      }
    }
  }

  __device__ __forceinline__ float weight_of(int line) const {
    return weighs ? shared.weights[line] * (1 / unscale_of_lying) : 1;
  }

  // Over the cluster: what each of a warp's rows is multiplied by.
  __device__ __forceinline__ void share_largest(std::uint32_t (&of_quad)[4], float (&scales)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      for (int other = quads; other < 32; other *= 2)
        of_quad[i] = max(of_quad[i], __shfl_xor_sync(~0u, of_quad[i], other));
      if (lane < quads) shared.largest[warp][lane * 4 + i] = of_quad[i];
    }
    __syncthreads();
    if (thread < strip) {
      std::uint32_t most = 0;
      for (const auto& of_warp : shared.largest) most = max(most, of_warp[thread]);
      shared.most[thread] = most;
    }
    meet_cluster();
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float2 pair = read_pair_of(lane % parts, address_of(&shared.most[my_rows + i]));
      const std::uint32_t most[2] = {__reduce_max_sync(~0u, __float_as_uint(pair.x)),
                                     __reduce_max_sync(~0u, __float_as_uint(pair.y))};
#pragma unroll
      for (int at = 0; at < 2; ++at) {
        shared.most_of_all[my_rows + i + at] = most[at];
        scales[i + at] = Scale(most[at]).up;
      }
    }
  }

  // Halves of a warp's rows of a chunk.
  __device__ __forceinline__ void write(int from, const float (&scales)[4], Found (&found)[4]) const {
    const auto rows = static_cast<int>(min(matrix.rows - first - my_rows, std::int64_t{4}));
    const int at = first_line(from) + lane * packet;
    auto* out = static_cast<__half*>(matrix.halves) + (first + my_rows) * 2 * halves.padded + place_of_half(from + at);
    static_assert(piece % halves_step == 0);
    for (int line = at; line < chunk && from + line < halves.padded; line += piece, out += 2 * piece) {
      Quad lines[packet];
      float weights[packet];
#pragma unroll
      for (int i = 0; i < packet; ++i) {
        lines[i] = place(line + i, warp);
        weights[i] = weight_of(line + i);
      }
      __half* high = out;
#pragma unroll
      for (int row = 0; row < 4; ++row, high += 2 * halves.padded) {
        if (row >= rows) break;
        const Values values{lines[0].at[row], lines[1].at[row], lines[2].at[row], lines[3].at[row]};
        if constexpr (weighs) {
          Values weighed;
#pragma unroll
          for (int i = 0; i < packet; ++i) weighed.at[i] = values.at[i] * weights[i];
          split(weighed, scales[row], halves.reach, high, found[row], Weighed(values, weights));
        } else {
          split(values, scales[row], halves.reach, high, found[row]);
        }
      }
    }
  }

  __device__ __forceinline__ FoundByAll found_by(int block, int row) const {
    const Address at = address_of(&shared.found[row]);
    static_assert(sizeof(FoundByAll) == 2 * sizeof(float2));
    const float2 pairs[2] = {read_pair_of(block, at), read_pair_of(block, at + sizeof(float2))};
    return reinterpret_cast<const FoundByAll&>(pairs);
  }

  // All blocks' parts, by the first of them, in their order.
  __device__ __forceinline__ void gather_all(const Found (&found)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const FoundByAll of_part = gather(found[i]);
      if (lane == 0) shared.found[my_rows + i] = of_part;
    }
    meet_cluster();
    if (part == 0 && thread < strip && first + thread < matrix.rows) {
      FoundByAll all{};
      for (int block = 0; block < parts; ++block) all.add(found_by(block, thread));
      const std::uint32_t largest = shared.most_of_all[thread];
      RowFacts facts = facts_from(all, largest, Scale(largest), halves.inner);
      if (weighs && largest == 0 && all.rest > 0) facts.doubt = infinity;  // zero by their lines' powers of two
      matrix.facts[first + thread] = facts;
    }
    meet_to_leave();  // nobody leaves while another reads what he has found
  }

  __device__ __forceinline__ void run() const {
    std::uint32_t largest[4] = {};
    int from = end - (end - begin + chunk - 1) / chunk * chunk;
    for (;; from += chunk) {
      load(from);
      look_for_largest_of(from, largest);
      if (from + chunk == end) break;
      __syncthreads();
    }
    float scales[4];
    share_largest(largest, scales);
    Found found[4];
    for (;; load(from)) {
      write(from, scales, found);
      from -= chunk;
      if (from + chunk <= begin) break;
      __syncthreads();
    }
    gather_all(found);
  }
};

template <bool aligned, bool weighs>
__global__ void __launch_bounds__(threads, blocks_at_once) split_columns(const __grid_constant__ Halves halves) {
  cuda::wait_for_kernel_before();
  cuda::let_kernel_after_begin();
  extern __shared__ __align__(16) unsigned char shared[];
  const std::int64_t strips_of_x = ceiling(halves.x.rows, strip);
  const std::int64_t which = blockIdx.x / static_cast<unsigned>(blocks_in_cluster());
  const bool is_weight = which >= strips_of_x;
  Strip<aligned, weighs>{*reinterpret_cast<Shared*>(shared), halves, is_weight ? halves.weight : halves.x,
                         (is_weight ? which - strips_of_x : which) * strip}
      .run();
}

// Of a long strip more parts, if the GPU has clusters of so many blocks that keep it busy: what is not in shared memory is read again, and
// the L2, which also has the halves to write, often has lost it. A weight of 8192×8192 took 177 µs by eight parts, and 155 so.
template <auto kernel>
int most_parts_of(const Halves& halves) {
  if (halves.padded <= most_parts * chunk) return most_parts;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess) {
    cudaGetLastError();  // or the next launch would be said to have failed
    return most_parts;
  }
  const int clusters = cuda::clusters_at_once<kernel>(threads, sizeof(Shared), more_parts);
  return clusters * more_parts >= (blocks_at_once - 1) * cuda::processors() ? more_parts : most_parts;
}

// As few parts as are in shared memory as a whole, and as many as give each multiprocessor something to do.
int parts_of(const Halves& halves, std::int64_t strips, int most) {
  int parts = 1;
  while (parts < most &&
         (parts * chunk < halves.padded || (strips * parts < cuda::processors() && parts * 2 * piece <= halves.padded)))
    parts *= 2;
  return parts;
}

template <bool aligned, bool weighs>
const char* launch(const Halves& halves, cudaStream_t stream) {
  const std::int64_t strips = ceiling(halves.x.rows, strip) + ceiling(halves.weight.rows, strip);
  constexpr auto kernel = split_columns<aligned, weighs>;
  if (const char* error = allow_shared_memory<kernel>(sizeof(Shared))) return error;
  const int parts = parts_of(halves, strips, most_parts_of<kernel>(halves));
  cuda::launch_with<kernel>({cuda::grid_of(strips * parts, 1), threads, sizeof(Shared), parts}, stream, halves);
  return cuda::launch_error();
}

// Whether four neighbours in memory, of four rows, can be read at a time.
bool is_aligned(const SplitMatrix& matrix) {
  return matrix.rows == 0 || (reinterpret_cast<std::uintptr_t>(matrix.from) % 16 == 0 && matrix.stride % 4 == 0);
}

}  // namespace

const char* split_by_columns(const Halves& halves, cudaStream_t stream) {
  if (halves.x.rows + halves.weight.rows == 0) return nullptr;
  const bool aligned = is_aligned(halves.x) && is_aligned(halves.weight);
  if (halves.lines != nullptr)
    return aligned ? launch<true, true>(halves, stream) : launch<false, true>(halves, stream);
  return aligned ? launch<true, false>(halves, stream) : launch<false, false>(halves, stream);
}

}  // namespace tailor::hopper
