// Memory: a few neighbouring elements at a time, where they are aligned as one access of 16 bytes.
#pragma once
#include <cstring>

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

using Address = std::uint32_t;  // in shared memory

__device__ __forceinline__ Address address_of(const void* shared) {
  return static_cast<Address>(__cvta_generic_to_shared(shared));
}

// So many bytes to shared memory without a register on the way; zeros for those that are not there.
template <int bytes>
__device__ __forceinline__ void bring(Address to, const void* from, int there) {
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(bytes), "r"(there)
                 : "memory");
}
__device__ __forceinline__ void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until no more groups than that are under way, the last ones.
template <int groups>
__device__ __forceinline__ void wait_for_groups_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

template <class T>
inline constexpr int elements_in_16_bytes = 16 / sizeof(T);

// As they lie in memory, in words: elements of 16 bits the compiler would take apart where they are read, and carry one by one. Wider than
// 16 bytes (floats that belong to packets of 16-bit elements) it is several accesses.
template <class T, int Width>
struct alignas(sizeof(T) * Width < 16 ? sizeof(T) * Width : 16) Packet {
  using Word = std::conditional_t<sizeof(T) * Width % 4 == 0, std::uint32_t, T>;
  static constexpr int words = sizeof(T) * Width / sizeof(Word);
  Word at[words];
};

template <int Width, class T>
__device__ __forceinline__ Packet<T, Width> fetch(const T* from) {
  return *reinterpret_cast<const Packet<T, Width>*>(from);
}

template <class T, int Width, class F>
__device__ __forceinline__ void unpack(const Packet<T, Width>& packet, F* to) {
  if constexpr (sizeof(T) == 2 && packet.words < Width) {
#pragma unroll
    for (int i = 0; i < packet.words; ++i) {
      const float2 pair = unpack(packet.at[i], T());
      to[2 * i] = pair.x;
      to[2 * i + 1] = pair.y;
    }
  } else {
    T values[Width];
    memcpy(values, packet.at, sizeof(values));
#pragma unroll
    for (int i = 0; i < Width; ++i) to[i] = widen(values[i]);
  }
}

template <class T, int Width, class F>
__device__ __forceinline__ Packet<T, Width> pack(const F* from) {
  Packet<T, Width> packet;
  if constexpr (sizeof(T) == 2 && packet.words < Width) {
#pragma unroll
    for (int i = 0; i < packet.words; ++i) packet.at[i] = pack(from[2 * i], from[2 * i + 1], T());
  } else {
    T values[Width];
#pragma unroll
    for (int i = 0; i < Width; ++i) narrow(from[i], values[i]);
    memcpy(packet.at, values, sizeof(values));
  }
  return packet;
}

template <int Width, class T, class F>
__device__ __forceinline__ void load(const T* from, F* to) {
  unpack(fetch<Width>(from), to);
}

// One instruction each. What is assigned the compiler writes element by element where a loop is long.
__device__ __forceinline__ void write(void* to, const std::uint32_t (&words)[1]) {
  asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(words[0]) : "memory");
}
__device__ __forceinline__ void write(void* to, const std::uint32_t (&words)[2]) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(words[0]), "r"(words[1]) : "memory");
}
__device__ __forceinline__ void write(void* to, const std::uint32_t (&words)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]),
               "r"(words[3])
               : "memory");
}

template <int Width, class T, class F>
__device__ __forceinline__ void store(const F* from, T* to) {
  const Packet<T, Width> packet = pack<T, Width>(from);
  if constexpr (sizeof(packet) < 4) {
    *to = packet.at[0];
  } else {
    constexpr int at_once = alignof(Packet<T, Width>) / 4;
#pragma unroll
    for (int i = 0; i < packet.words; i += at_once)
      write(reinterpret_cast<std::uint32_t*>(to) + i, reinterpret_cast<const std::uint32_t(&)[at_once]>(packet.at[i]));
  }
}

}  // namespace tailor::cuda
