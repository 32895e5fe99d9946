// What a matrix product is computed in: one policy each.
#pragma once
#include "../cuda/memory.cuh"
#include "wgmma.cuh"

namespace tailor::hopper {

using cuda::pack;
using cuda::unpack;

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
