// What a matrix product is computed in: one policy each.
#pragma once
#include "../cuda/memory.cuh"
#include "wgmma.cuh"

namespace tailor::hopper {

// Two numbers of 16 bits in a register. Opaque, or the compiler packs late and unpacks early, and wins no register.
__device__ __forceinline__ std::uint32_t pack(float a, float b, __nv_bfloat16) {
  std::uint32_t bits;
  asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(b), "f"(a));
  return bits;
}
__device__ __forceinline__ std::uint32_t pack(float a, float b, __half) {
  std::uint32_t bits;
  asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(b), "f"(a));
  return bits;
}
__device__ __forceinline__ float2 unpack(std::uint32_t bits, __nv_bfloat16) {
  asm volatile("" : "+r"(bits));
  return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};  // an instruction each
}
__device__ __forceinline__ float2 unpack(std::uint32_t bits, __half) {
  asm volatile("" : "+r"(bits));
  return __half22float2(reinterpret_cast<const __half2&>(bits));
}

// `Element` is the type of the result, `Operand` what the tensor cores read. An operand is a matrix of them, or two: `pieces`.
struct BFloat16 {
  using Element = __nv_bfloat16;
  using Operand = Element;
  static constexpr int pieces = 1;
  static constexpr CUtensorMapDataType of_operands = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  static constexpr CUtensorMapDataType of_result = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
};

struct Float16 {
  using Element = __half;
  using Operand = Element;
  static constexpr int pieces = 1;
  static constexpr CUtensorMapDataType of_operands = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  static constexpr CUtensorMapDataType of_result = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
};

// Operands are rounded to nearest by the copy engine, as cuBLAS does it.
struct TensorFloat32 {
  using Element = float;
  using Operand = Element;
  static constexpr int pieces = 1;
  static constexpr CUtensorMapDataType of_operands = CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  static constexpr CUtensorMapDataType of_result = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
};

// float32 as the sum of two halves, which a kernel before has made, or warps beside the products (halves.h).
struct TwoHalves {
  using Element = float;
  using Operand = __half;
  static constexpr int pieces = 2;
  static constexpr bool x_lies = false;
  static constexpr CUtensorMapDataType of_operands = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
};
// x is transposed, and its halves lie as it does (shared_halves.h).
struct TwoHalvesLying : TwoHalves {
  static constexpr bool x_lies = true;
};

// Of products of halves: whether a tile has registers for sums of what lower halves give, apart.
template <int width>
inline constexpr bool lower_is_apart = width <= 128;

template <class Precision>
inline constexpr bool x_lies = [] {
  if constexpr (Precision::pieces == 2) return Precision::x_lies;
  return false;
}();

}  // namespace tailor::hopper
