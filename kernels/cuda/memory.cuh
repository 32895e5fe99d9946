// Memory: a few neighbouring elements at a time, where they are aligned as one access of 16 bytes.
#pragma once
#include "math.cuh"

namespace tailor::cuda {

// From Hopper on a kernel is launched while the one before it still runs (launch.cuh), and reads nothing before this.
__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The kernel after this one may begin; it waits by itself for what this one writes.
__device__ __forceinline__ void let_kernel_after_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <class T>
inline constexpr int elements_in_16_bytes = 16 / sizeof(T);

// Wider than 16 bytes (floats that belong to packets of 16-bit elements) it is several accesses.
template <class T, int Width>
struct alignas(sizeof(T) * Width < 16 ? sizeof(T) * Width : 16) Packet {
  T at[Width];
};

template <int Width, class T>
__device__ __forceinline__ Packet<T, Width> fetch(const T* from) {
  return *reinterpret_cast<const Packet<T, Width>*>(from);
}

template <class T, int Width, class F>
__device__ __forceinline__ void unpack(const Packet<T, Width>& packet, F* to) {
#pragma unroll
  for (int i = 0; i < Width; ++i) to[i] = widen(packet.at[i]);
}

template <int Width, class T, class F>
__device__ __forceinline__ void load(const T* from, F* to) {
  unpack(fetch<Width>(from), to);
}

template <int Width, class T, class F>
__device__ __forceinline__ void store(const F* from, T* to) {
  Packet<T, Width> packet;
#pragma unroll
  for (int i = 0; i < Width; ++i) narrow(from[i], packet.at[i]);
  *reinterpret_cast<Packet<T, Width>*>(to) = packet;
}

}  // namespace tailor::cuda
