// Threads that split a row together: what they find, they find out for all of them.
#pragma once
#include "halves_split.cuh"

namespace tailor::hopper {

// The most of all that warps have, which meet.
template <int warps>
__device__ __forceinline__ std::uint32_t most_of_warps(std::uint32_t (&of_warp)[warps], int lane, int warp,
                                                       std::uint32_t value) {
  value = __reduce_max_sync(~0u, value);
  if constexpr (warps > 1) {
    if (lane == 0) of_warp[warp] = value;
    __syncthreads();
    value = __reduce_max_sync(~0u, of_warp[lane % warps]);
  }
  return value;
}

template <int threads>
struct RowOfBlock {
  static constexpr int warps = threads / 32;
  struct Memory {
    std::uint32_t largest[warps];
    FoundByAll found[warps];
  };
  Memory& memory;
  const int lane, warp;  // of the row's threads

  __device__ __forceinline__ std::uint32_t most(std::uint32_t value) const {
    return most_of_warps(memory.largest, lane, warp, value);
  }
  // For the first thread.
  __device__ __forceinline__ FoundByAll gather(const Found& found) const {
    FoundByAll all = hopper::gather(found);
    if constexpr (warps > 1) {
      if (lane == 0) memory.found[warp] = all;
      __syncthreads();
      if (warp > 0) return all;
      all = {};
      for (const FoundByAll& of_warp : memory.found) all.add(of_warp);
    }
    return all;
  }
};

}  // namespace tailor::hopper
