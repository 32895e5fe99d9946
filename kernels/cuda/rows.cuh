// The tail in one kernel: reads y once, writes the result once. Every value that a group norm takes together lies in the
// registers of one slot (layout.h), so its statistics are two passes over registers.
#pragma once
#include "place.cuh"
#include "statistics.cuh"

namespace tailor::cuda {

// Sums over a slot, one for each row of the tile. The order is fixed.
template <class F, int Rows>
__device__ __forceinline__ void sum_over_slot(F (&sums)[Rows], const Layout& layout) {
  const int within_warp = layout.lanes < 32 ? layout.lanes : 32;
#pragma unroll
  for (int row = 0; row < Rows; ++row)
    for (int apart = within_warp / 2; apart > 0; apart /= 2)
      sums[row] += __shfl_xor_sync(0xffffffffu, sums[row], apart);
  if (layout.lanes <= 32) return;
  __shared__ F of_warp[Rows][32];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  __syncthreads();  // the last round's sums have been read
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int row = 0; row < Rows; ++row) of_warp[row][warp] = sums[row];
  }
  __syncthreads();
#pragma unroll
  for (int row = 0; row < Rows; ++row) {
    sums[row] = 0;
    for (int i = 0; i < layout.lanes / 32; ++i) sums[row] += of_warp[row][i];
  }
}

// Mean and 1 / sqrt(var + eps) of each row's group, in two passes over the registers.
template <class F, int Rows, int Width, int Loads>
__device__ __forceinline__ void group_statistics(const Tile<F, Rows, Width * Loads>& v,
                                                 const Place<Width, Loads>& place, const Layout& layout, F eps,
                                                 PerRow<F, Rows>& mean, PerRow<F, Rows>& inverse_deviation) {
  const F count = static_cast<F>(layout.group_width);
  F sums[Rows] = {};
#pragma unroll
  for (int row = 0; row < Rows; ++row)
#pragma unroll
    for (int i = 0; i < Width * Loads; ++i) sums[row] += place.holds[i / Width] ? v.at[row][i] : F(0);
  sum_over_slot(sums, layout);
#pragma unroll
  for (int row = 0; row < Rows; ++row) {
    mean.at[row] = sums[row] / count;
    sums[row] = 0;
#pragma unroll
    for (int i = 0; i < Width * Loads; ++i) {
      const F off = v.at[row][i] - mean.at[row];
      sums[row] += place.holds[i / Width] ? off * off : F(0);
    }
  }
  sum_over_slot(sums, layout);
#pragma unroll
  for (int row = 0; row < Rows; ++row) inverse_deviation.at[row] = F(1) / sqrt(sums[row] / count + eps);
}

// The whole formula over one tile.
template <class Chain, class T, int Rows, int Width, int Loads>
struct Forward : Arithmetic<typename MathOf<T>::type> {
  using F = Compute<T>;
  using Value = Tile<F, Rows, Width * Loads>;
  using Operands = typename OperandsOf<Chain, T, Width, Loads>::type;

  const Tail& tail;
  const Layout& layout;
  const Place<Width, Loads>& place;
  const Operands& operands;
  const ColumnStatistics<F, Width * Loads>& statistics;
  const Value& y;

  __device__ __forceinline__ Forward(const Tail& t, const Layout& l, const Place<Width, Loads>& p, const Operands& o,
                                     const ColumnStatistics<F, Width * Loads>& s, const Value& value)
      : tail(t), layout(l), place(p), operands(o), statistics(s), y(value) {}

  __device__ __forceinline__ Value linear() { return y; }
  template <class V>
  __device__ __forceinline__ auto vector(V v) {
    return operands.vector(v);
  }
  template <class S>
  __device__ __forceinline__ F scalar(S s) {
    return operands.scalar(s);
  }
  __device__ __forceinline__ Value batch_norm(const Value& v) {
    return map(v, [](F x, F m, F s, F b) { return (x - m) * s + b; }, statistics.mean, statistics.scale,
               statistics.bias);
  }
  __device__ __forceinline__ Value group_norm(const Value& v) {
    PerRow<F, Rows> mean;
    PerRow<F, Rows> inverse_deviation;
    group_statistics(v, place, layout, static_cast<F>(tail.norm.eps), mean, inverse_deviation);
    return normalise(v, mean, inverse_deviation, columns_of<T>({tail.norm.weight, true}, place, F(1)),
                     columns_of<T>({tail.norm.bias, true}, place, F(0)));
  }
};

template <class Chain, class T, int Rows, int Width, int Loads>
__global__ void __launch_bounds__(256) rows_kernel(const __grid_constant__ Tail tail, const Layout layout) {
  using F = Compute<T>;
  const Place<Width, Loads> place(layout);
  const typename OperandsOf<Chain, T, Width, Loads>::type operands{tail, place};
  ColumnStatistics<F, Width * Loads> statistics;
  if constexpr (has_batch_norm<Chain>) {
    static_assert(Loads == 1);
    const bool first = blockIdx.y == 0 && place.first_row == 0;
    if (place.holds[0]) statistics.template find<T, Width>(tail, place.column[0], first);
  }
  // All threads of a block make the same number of rounds: shuffles and barriers need them all.
  const std::int64_t round = place.row_step * Rows;
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.y) * layout.rows_per_pass;
  for (std::int64_t done = 0; start + done < tail.rows; done += round) {
    const std::int64_t row = place.first_row + done;
    const auto y = load_tile<T, Rows>(static_cast<const T*>(tail.y), tail.columns, row, place.row_step, tail.rows, place);
    Forward<Chain, T, Rows, Width, Loads> forward(tail, layout, place, operands, statistics, y);
    const auto out = Formula<Chain>::fold(forward);
    store_tile(out, static_cast<T*>(tail.out), tail.columns, row, place.row_step, tail.rows, place);
  }
}

}  // namespace tailor::cuda
