// Threads that split a row together: what they find, they find out for all of them.
#pragma once
#include "halves_split.cuh"

namespace tailor::hopper {

template <int threads>
struct RowOfBlock {
  static constexpr int warps = threads / 32;
  struct Memory {
    std::uint32_t largest[warps];
    FoundByAll found[warps];
  };
  Memory& memory;
  const int lane, warp;  // of the row's threads

  __device__ __forceinline__ void sync() const {
    if constexpr (warps > 1) __syncthreads();
  }
  __device__ __forceinline__ std::uint32_t most(std::uint32_t value) const {
    value = __reduce_max_sync(~0u, value);
    if constexpr (warps > 1) {
      if (lane == 0) memory.largest[warp] = value;
      sync();
      value = __reduce_max_sync(~0u, memory.largest[lane % warps]);
    }
    return value;
  }
  // For the first thread.
  __device__ __forceinline__ FoundByAll gather(const Found& found) const {
    FoundByAll all = hopper::gather(found);
    if constexpr (warps > 1) {
      if (lane == 0) memory.found[warp] = all;
      sync();
      if (warp > 0) return all;
      all = {};
      for (const FoundByAll& of_warp : memory.found) all.add(of_warp);
    }
    return all;
  }
};

}  // namespace tailor::hopper
