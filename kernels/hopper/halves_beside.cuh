// Halves of x's rows that are not needed yet, made beside the products of the first by warps that have nothing else to do. Whoever is
// free takes the next row: so all are made whether or not all blocks are running. Who makes which differs from run to run; what is made
// does not.
#pragma once
#include "halves_split.cuh"
#include "ptx.cuh"

namespace tailor::hopper {

// do_it(values, column) for a row's packets, so many of which are read at a time. Registers are few: what follows from the row, and
// which lane this is, is worked out where it is needed.
template <int at_a_time, class Do>
__device__ __forceinline__ void for_packets(const Halves& halves, int row, int up_to, Do do_it) {
  constexpr int step = 32 * packet;
  const float* const from = halves.x.from + anew(row) * halves.x.stride;
#pragma unroll 1
  for (int column = anew(static_cast<int>(threadIdx.x)) % 32 * packet; column < up_to; column += at_a_time * step) {
    Values values[at_a_time];
#pragma unroll
    for (int i = 0; i < at_a_time; ++i) values[i] = read<true>(from, column + i * step, halves.inner);
#pragma unroll
    for (int i = 0; i < at_a_time; ++i) do_it(values[i], column + i * step);
  }
}

// By a warp. The numbers come twice, the second time from the second cache.
__device__ __forceinline__ void make_row(const Halves& halves, int row) {
  std::uint32_t largest = 0;
  for_packets<4>(halves, row, halves.inner, [&](const Values& values, int) { look_for_largest(values, largest); });
  largest = __reduce_max_sync(~0u, largest);
  const float up = Scale(largest).up;
  auto* const to = static_cast<__half*>(halves.x.halves) + static_cast<std::int64_t>(row) * 2 * halves.padded;
  Found found;
  for_packets<1>(halves, row, halves.padded, [&](const Values& values, int column) {
    split(values, up, halves.reach, to + place_of_half(column), found);
  });
  const FoundByAll all = gather(found);
  if (threadIdx.x % 32 == 0) halves.x.facts[row] = facts_from(all, largest, Scale(largest), halves.inner);
}

// A warp, until there is no row left.
__device__ __forceinline__ void make_rows_beside(const Halves& halves) {
  if (halves.rows_beside == 0) return;
  const bool speaks = threadIdx.x % 32 == 0;
  const auto take = [&] {
    std::uint32_t taken = 0;
    if (speaks) taken = atomicAdd(halves.progress, 1u);
    return halves.rows_before() + uniform(static_cast<int>(taken));
  };
  int next;
  for (int row = take(); row < halves.x.rows; row = next) {
    next = take();
    if (speaks && next < halves.x.rows && halves.inner >= packet) {
      constexpr int most = 1 << 16;  // the engine counts sixteens of bytes in 16 bits
      bring_into_second_cache(halves.x.from + next * halves.x.stride, min(halves.inner, most) / packet * 16);
    }
    make_row(halves, row);
    show_gpu_to_copy_engines();
    __syncwarp();
    if (speaks) add_for_gpu(halves.progress + 1 + row / rows_asked_for, 1);
  }
}

// Waits until those rows of x are made that are asked for together with this one.
__device__ __forceinline__ void wait_for_rows(const Halves& halves, int row) {
  if (row < halves.rows_before() || row >= halves.x.rows) return;
  const int which = row / rows_asked_for;
  const int all = min(static_cast<int>(halves.x.rows) - which * rows_asked_for, rows_asked_for);
  while (ask_gpu_for(halves.progress + 1 + which) < all) __nanosleep(64);
  show_gpu_to_copy_engines();
}

}  // namespace tailor::hopper
