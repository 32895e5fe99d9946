// How float32 numbers become thirds: each is what the ones before it leave, rounded to bfloat16. The last takes all that is left.
#pragma once
#include "precision.cuh"

namespace tailor::hopper {

// Two numbers, a pair in a register for each third. `rest` gains a bit in its lower half where a last third would have to be
// finer than the least bfloat16, and infinities and NaN leave one there.
__device__ __forceinline__ void split_pair(float a, float b, std::uint32_t (&thirds)[3], std::uint32_t& rest) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    thirds[i] = pack(a, b, __nv_bfloat16());
    a -= __uint_as_float(thirds[i] << 16);
    b -= __uint_as_float(thirds[i] & 0xffff0000u);
  }
  // A bfloat16 is the upper half of a float.
  thirds[2] = __byte_perm(__float_as_uint(a), __float_as_uint(b), 0x7632);
  rest |= __float_as_uint(a) | __float_as_uint(b);
}
__device__ __forceinline__ bool is_lost(std::uint32_t rest) { return (rest & 0xffffu) != 0; }

}  // namespace tailor::hopper
