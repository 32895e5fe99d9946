// A result computed again from the float32 numbers that were given, as SGEMM would: by a warp, in a fixed order.
#pragma once
#include "../arithmetic.h"
#include "float_matrix.h"
#include "ptx.cuh"

namespace tailor::hopper {

// Some neighbours of a row, zero behind its end. Rows that are not there are the last.
template <int count>
__device__ __forceinline__ Columns<float, count> read_columns(const FloatMatrix& matrix, int which, int k, int inner) {
  const std::int64_t at = min(static_cast<std::int64_t>(which), matrix.rows - 1);
  Columns<float, count> out;
  if (matrix.aligned && k + count <= inner) {
    using Access = std::conditional_t<count == 4, float4, float2>;
    const Access all = read_only(reinterpret_cast<const Access*>(matrix.from + at * matrix.stride + k));
    return reinterpret_cast<const Columns<float, count>&>(all);
  }
  const float* const first = matrix.from + (matrix.transposed ? at : at * matrix.stride);
  const std::int64_t step = matrix.transposed ? matrix.stride : 1;
#pragma unroll
  for (int i = 0; i < count; ++i) out.at[i] = k + i < inner ? read_only(first + (k + i) * step) : 0.0f;
  return out;
}

// A row of x times a row of the weight, by the whole warp.
__device__ __forceinline__ float sum_of_products(const FloatMatrix& x, int x_row, const FloatMatrix& weight,
                                                 int weight_row, int inner, int lane) {
  constexpr int side_by_side = 4;
  float sums[side_by_side][4] = {};
  for (int k = lane * 4; k < inner; k += 32 * 4 * side_by_side) {
#pragma unroll
    for (int i = 0; i < side_by_side; ++i) {
      const auto of_x = read_columns<4>(x, x_row, k + 32 * 4 * i, inner);
      const auto of_weight = read_columns<4>(weight, weight_row, k + 32 * 4 * i, inner);
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(of_x.at[j], of_weight.at[j], sums[i][j]);
    }
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < side_by_side; ++i) sum += (sums[i][0] + sums[i][1]) + (sums[i][2] + sums[i][3]);
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  return sum;
}

}  // namespace tailor::hopper
