// The tail in one kernel: reads y once, writes the result once. Every value that a group norm takes together lies in the
// registers of one slot (layout.h).
#pragma once
#include "statistics.cuh"

namespace tailor::cuda {

// Everything of a tail that belongs to a thread's columns, read once.
template <class Chain, class T, int Width>
struct Columnwise {
  using F = Compute<T>;
  Operands<Chain, F, Width> operands;
  ColumnStatistics<F, Width> statistics;  // batch norm
  Columns<F, Width> group_norm_weight, group_norm_bias;

  __device__ __forceinline__ Columnwise(const Tail& tail, const Place& place)
      : operands(operands_of<Chain, T, Width>(tail, place)) {
    if constexpr (has_batch_norm<Chain>) statistics = column_statistics<T, Width>(tail, place);
    if constexpr (has_group_norm<Chain>) {
      group_norm_weight = columns_of<T, Width>({tail.norm.weight, true}, place, F(1));
      group_norm_bias = columns_of<T, Width>({tail.norm.bias, true}, place, F(0));
    }
  }
};

// The whole formula over one tile.
template <class Chain, class T, int Rows, int Width>
struct Forward : LeavesOf<Chain, T, Rows, Width> {
  using F = Compute<T>;
  using Value = Tile<F, Rows, Width>;

  const Tail& tail;
  const Layout& layout;
  const Place& place;
  const Columnwise<Chain, T, Width>& columns;

  __device__ __forceinline__ Forward(const Tail& t, const Layout& l, const Place& p,
                                     const Columnwise<Chain, T, Width>& c, const Value& y)
      : LeavesOf<Chain, T, Rows, Width>(c.operands, y), tail(t), layout(l), place(p), columns(c) {}

  __device__ __forceinline__ Value batch_norm(const Value& a) {
    const Value v = this->rounded(a);
    return normalise(v, columns.statistics.mean, columns.statistics.scale, columns.statistics.bias);
  }
  __device__ __forceinline__ Value group_norm(const Value& a) {
    const Value v = this->rounded(a);
    const GroupStatistics<typename MathOf<T>::type, F, Rows, Width> found(v, place, layout,
                                                                          static_cast<F>(tail.norm.eps));
    return normalise(v, found.mean, found.inverse_deviation, columns.group_norm_weight, columns.group_norm_bias);
  }
};

template <class Chain, class T, int Rows, int Width>
__global__ void __launch_bounds__(most_threads, has_group_norm<Chain>&& Width == 8 ? 3 : 2)
    rows_kernel(const __grid_constant__ Tail tail, const Layout layout) {
  using Rounds = Fetched<T, Rows, Width>;
  wait_for_kernel_before();
  const Place place(layout, Width);
  Marching marching(tail, place);
  Rounds next(tail.y, marching);
  const Columnwise<Chain, T, Width> columns(tail, place);
  for (int round = rounds_of_block(tail, layout, Rows); round > 0; --round) {
    const auto y = next.tile();
    const Marching here = marching;
    marching.advance(Rows);
    next = Rounds(tail.y, marching);
    Forward<Chain, T, Rows, Width> forward(tail, layout, place, columns, y);
    store_tile<T>(Formula<Chain>::fold(forward), tail.out, here);
  }
}

}  // namespace tailor::cuda
