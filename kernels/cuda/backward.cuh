// The backward of a tail: everything is computed anew from y, forwards and then backwards, in registers. One kernel makes
// the gradient of y and each thread's part of the sums over rows, a second adds the parts up in a fixed order, a third the columns where
// one value is for all of them. A batch norm with batch statistics needs two of its sums before it can give any gradient of y: there the
// first two run twice.
#pragma once
#include "../gradient.h"
#include "ahead.cuh"
#include "rows.cuh"

namespace tailor::cuda {

// A thread's sums. In float32 with what each addition lost: the gradient before batch statistics is what is left of two sums
// over the whole batch, and where it cancels their last digits are all there is of it.
template <class Chain, class T, int Width>
struct ThreadSums {
  using F = Compute<T>;
  static constexpr int count = Sums<Chain>::count;
  static constexpr bool compensated = has_batch_norm<Chain> && std::is_same_v<T, float>;
  F at[count][Width] = {};
  F lost[compensated ? count : 1][compensated ? Width : 1] = {};

  __device__ __forceinline__ void add(int which, int column, F value) {
    if constexpr (compensated) {
      const F owed = value - lost[which][column];
      const F sum = at[which][column] + owed;
      const F loss = (sum - at[which][column]) - owed;
      lost[which][column] = isfinite(loss) ? loss : F(0);  // an infinite sum lost nothing
      at[which][column] = sum;
    } else {
      at[which][column] += value;
    }
  }
};

// What the first pair of kernels finds for the second, in the type of the arithmetic, [columns] each.
template <class F>
struct NormSums {
  F* of_weight = nullptr;
  F* of_bias = nullptr;
};

// What a norm found out about a tile: a mean and a factor, for each row or for each column, and its affine parameters. `lost`
// is what rounding left out of the mean.
template <class Mean, class Lost, class Weight>
struct Found {
  Mean mean;
  Lost lost;
  Mean inverse_deviation;
  Weight weight, bias;
};

// The columns' numbers, for the backward.
template <class Chain, class T, int Width>
struct BackwardColumns {
  using F = Compute<T>;
  Operands<Chain, F, Width> operands;
  Columns<F, Width> weight, bias;             // of the norm
  Columns<F, Width> mean, inverse_deviation;  // batch norm
  Columns<F, Width> tilt, shift;              // the norm's sums over the number of rows

  __device__ __forceinline__ BackwardColumns(const Tail& tail, const NormSums<F>& sums, Phase phase, const Place& place)
      : operands(operands_of<Chain, T, Width>(tail, place)), tilt{}, shift{} {
    weight = columns_of<T, Width>({tail.norm.weight, true}, place, F(1));
    bias = columns_of<T, Width>({tail.norm.bias, true}, place, F(0));
    if constexpr (has_batch_norm<Chain>) {
      mean = inverse_deviation = {};
      if (!place.holds) return;
      if (tail.norm.batch_statistics) {
        const F* saved = static_cast<const F*>(tail.norm.saved) + place.column;
        load<Width>(saved, mean.at);
        load<Width>(saved + tail.columns, inverse_deviation.at);
      } else {
        load<Width>(static_cast<const T*>(tail.norm.mean) + place.column, mean.at);
        load<Width>(static_cast<const T*>(tail.norm.var) + place.column, inverse_deviation.at);
#pragma unroll
        for (int i = 0; i < Width; ++i)
          inverse_deviation.at[i] = scale_of(inverse_deviation.at[i], static_cast<F>(tail.norm.eps), F(1));
      }
      if (phase == Phase::before_norm) {
        const F share = F(1) / static_cast<F>(tail.rows);
        load<Width>(sums.of_weight + place.column, tilt.at);
        load<Width>(sums.of_bias + place.column, shift.at);
#pragma unroll
        for (int i = 0; i < Width; ++i) {
          tilt.at[i] *= share;
          shift.at[i] *= share;
        }
      }
    }
  }
};

// The formula's values, for the tape.
template <class Chain, class T, int Rows, int Width>
struct Recomputed : LeavesOf<Chain, T, Rows, Width> {
  using F = Compute<T>;
  using Value = Tile<F, Rows, Width>;
  const BackwardColumns<Chain, T, Width>& columns;
  const Layout& layout;
  const Place& place;
  const F eps;

  __device__ __forceinline__ Recomputed(const BackwardColumns<Chain, T, Width>& c, const Layout& l, const Place& p, F e,
                                        const Value& y)
      : LeavesOf<Chain, T, Rows, Width>(c.operands, y), columns(c), layout(l), place(p), eps(e) {}

  __device__ __forceinline__ auto found(const Value& v) {
    if constexpr (has_batch_norm<Chain>) {
      return Found<Columns<F, Width>, F, Columns<F, Width>>{columns.mean, 0, columns.inverse_deviation, columns.weight,
                                                            columns.bias};
    } else {
      const GroupStatistics<typename MathOf<T>::type, F, Rows, Width> statistics(v, place, layout, eps);
      return Found<PerRow<F, Rows>, PerRow<F, Rows>, Columns<F, Width>>{
          statistics.mean, statistics.lost, statistics.inverse_deviation, columns.weight, columns.bias};
    }
  }
  template <class Found>
  __device__ __forceinline__ Value norm(const Value& v, const Found& found) {
    return normalise(v, found.mean, found.inverse_deviation, found.weight, found.bias);
  }
};

// Takes the gradients that arrive at the leaves.
template <class Chain, class T, int Rows, int Width, Phase phase>
struct Gather {
  using F = Compute<T>;
  using Value = Tile<F, Rows, Width>;
  using Which = Sums<Chain>;
  const BackwardColumns<Chain, T, Width>& columns;
  const Layout& layout;
  const Place& place;
  int taken;  // rows of the tile that are there
  ThreadSums<Chain, T, Width>& sums;
  Value of_y{};
  bool has_come = false;

  __device__ __forceinline__ Gather(const BackwardColumns<Chain, T, Width>& c, const Layout& l, const Place& p,
                                    int rows, ThreadSums<Chain, T, Width>& s)
      : columns(c), layout(l), place(p), taken(rows), sums(s) {}

  __device__ __forceinline__ void sum(int which, const Value& g) {
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      if (row >= taken) continue;
#pragma unroll
      for (int i = 0; i < Width; ++i) sums.add(which, i, g.at[row][i]);
    }
  }

  __device__ __forceinline__ void linear(const Value& g) {
    of_y = !has_come ? g
                     : map(
                           of_y, [](F a, F b) { return a + b; }, g);
    has_come = true;
  }
  template <int index>
  __device__ __forceinline__ void vector(const Value& g) {
    if constexpr (makes<Chain, phase, index>) sum(Which::vector + index, g);
  }
  // To more digits than the norm gives: what all gradients of a group have in common must cancel.
  template <class Node>
  __device__ __forceinline__ Value normalised(const Node& node) {
    auto lost = node.found.lost;
    if constexpr (has_group_norm<Chain>) {
#pragma unroll
      for (int row = 0; row < Rows; ++row) lost.at[row] *= node.found.inverse_deviation.at[row];
    }
    return map(
        node.operand.value, [](F v, F m, F s, F l) { return fma(v - m, s, -l); }, node.found.mean,
        node.found.inverse_deviation, lost);
  }
  template <class Node>
  __device__ __forceinline__ Value norm(const Node& node, const Value& g) {
    if constexpr (has_batch_norm<Chain>)
      return batch_norm(node, g);
    else
      return group_norm(node, g);
  }
  template <class Node>
  __device__ __forceinline__ Value batch_norm(const Node& node, const Value& g) {
    const Value normal = normalised(node);
    if constexpr (phase != Phase::before_norm) {
      sum(Which::norm_weight, map(
                                  g, [](F a, F n) { return a * n; }, normal));
      sum(Which::norm_bias, g);
    }
    if constexpr (phase == Phase::norm_sums)
      return {};
    else
      return map(
          // Without batch statistics there is no tilt, whatever y is: infinity times zero would be no number.
          g, [](F a, F n, F t, F d, F s, F w) { return (a - d - (t != F(0) ? n * t : F(0))) * s * w; }, normal,
          columns.tilt, columns.shift, columns.inverse_deviation, columns.weight);
  }
  template <class Node>
  __device__ __forceinline__ Value group_norm(const Node& node, const Value& g) {
    const Value normal = normalised(node);
    sum(Which::norm_weight, map(
                                g, [](F a, F n) { return a * n; }, normal));
    sum(Which::norm_bias, g);
    const Value weighted = map(
        g, [](F a, F w) { return a * w; }, columns.weight);
    F both[2 * Rows];
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      both[row] = both[Rows + row] = 0;
#pragma unroll
      for (int i = 0; i < Width; ++i) {
        both[row] += weighted.at[row][i];
        both[Rows + row] += weighted.at[row][i] * normal.at[row][i];
      }
      if (!place.holds) both[row] = both[Rows + row] = 0;
    }
    sum_over_slot<2>(both, layout.lanes);
    const F share = F(1) / static_cast<F>(layout.group_width);
    PerRow<F, Rows> shift;
    PerRow<F, Rows> tilt;
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      shift.at[row] = both[row] * share;
      tilt.at[row] = both[Rows + row] * share;
    }
    return map(
        weighted, [](F a, F n, F t, F d, F s) { return (a - d - n * t) * s; }, normal, tilt, shift,
        node.found.inverse_deviation);
  }
};

// The threads of a block that have the same columns add up, and the block puts its part down: [sum][row block][columns].
template <class Chain, class F, int Width>
__device__ __forceinline__ void put_parts(F (&sums)[Sums<Chain>::count][Width], F* workspace, std::int64_t columns,
                                          const Layout& layout, const Place& place) {
  __shared__ F of_thread[Width][most_threads];
  const int slots = most_threads / layout.lanes;
  const int slot = static_cast<int>(threadIdx.x) / layout.lanes;
  const bool first = layout.groups >= slots || slot < layout.groups;
  const int apart = static_cast<int>(layout.groups) * layout.lanes;  // from one pass's thread to the next one's
#pragma unroll
  for (int which = 0; which < Sums<Chain>::count; ++which) {
    if (layout.rows_per_pass > 1) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < Width; ++i) of_thread[i][threadIdx.x] = sums[which][i];
      __syncthreads();
      for (int pass = 1; first && pass < layout.rows_per_pass; ++pass)
#pragma unroll
        for (int i = 0; i < Width; ++i) sums[which][i] += of_thread[i][threadIdx.x + pass * apart];
    }
    if (first && place.holds)
      store<Width>(sums[which],
                   workspace + (which * static_cast<std::int64_t>(gridDim.y) + blockIdx.y) * columns + place.column);
  }
}

template <class Chain, class T, int Rows, int Width, Phase phase>
__global__ void __launch_bounds__(most_threads, 2)
    backward_kernel(const __grid_constant__ Tail tail, const __grid_constant__ TailGradient gradient,
                    const NormSums<Compute<T>> norm_sums, const Layout layout) {
  using F = Compute<T>;
  using Coming = Ahead<T, Rows, Width>;
  wait_for_kernel_before();
  const Place place(layout, Width);
  Marching marching(tail, place);
  __shared__ typename Coming::Memory memory;
  Coming coming(memory, tail.y, gradient.of_out, marching);
  const BackwardColumns<Chain, T, Width> columns(tail, norm_sums, phase, place);
  ThreadSums<Chain, T, Width> sums;
  for (int round = rounds_of_block(tail, layout, Rows); round > 0; --round) {
    Tile<F, Rows, Width> y;
    Tile<F, Rows, Width> g;
    coming.take(y, g);
    Recomputed<Chain, T, Rows, Width> values(columns, layout, place, static_cast<F>(tail.norm.eps), y);
    Taped<Chain, typename MathOf<T>::type, Recomputed<Chain, T, Rows, Width>> taped{values};
    Gather<Chain, T, Rows, Width, phase> sink(columns, layout, place, marching.left, sums);
    Formula<Chain>::fold(taped).backward(g, sink);
    if constexpr (phase != Phase::norm_sums) {
      sink.sum(Sums<Chain>::bias, sink.of_y);
      store_tile<T>(sink.of_y, gradient.of_y, marching);
    }
    marching.advance(Rows);
  }
  put_parts<Chain>(sums.at, static_cast<F*>(gradient.workspace), tail.columns, layout, place);
}

// Where one sum goes: in the element type, in the type of the arithmetic, both or nowhere.
struct Destination {
  void* narrow = nullptr;
  void* wide = nullptr;
};

constexpr int most_sums = 3 + max_operands;

struct AddUp {
  Destination to[most_sums];
  int parts = 0;
};

constexpr int add_up_columns = 32;
constexpr int add_up_rows = 8;

// Adds up the parts of every sum that somebody wants; blockIdx.y is the sum.
template <class T>
__global__ void __launch_bounds__(add_up_columns* add_up_rows)
    add_up_kernel(const Compute<T>* workspace, std::int64_t columns, const __grid_constant__ AddUp add_up) {
  using F = Compute<T>;
  wait_for_kernel_before();
  const Destination to = add_up.to[blockIdx.y];
  if (to.narrow == nullptr && to.wide == nullptr) return;
  const int lane = static_cast<int>(threadIdx.x) % add_up_columns;
  const int row = static_cast<int>(threadIdx.x) / add_up_columns;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * add_up_columns + lane;
  const F* from = workspace + blockIdx.y * static_cast<std::int64_t>(add_up.parts) * columns + column;
  __shared__ double partial[add_up_rows][add_up_columns];
  double sum = 0;  // a few additions a column: precision is cheap here
  if (column < columns) {
    for (int part = row; part < add_up.parts; part += add_up_rows) sum += static_cast<double>(from[part * columns]);
  }
  partial[row][lane] = sum;
  __syncthreads();
  if (row != 0 || column >= columns) return;
#pragma unroll
  for (int i = 1; i < add_up_rows; ++i) sum += partial[i][lane];
  if (to.wide != nullptr) static_cast<F*>(to.wide)[column] = static_cast<F>(sum);
  if (to.narrow != nullptr) narrow(static_cast<F>(sum), static_cast<T*>(to.narrow)[column]);
}

// Of vectors that are one value for all columns: what has come to each column, and where the sum goes. Null: there is none.
template <class F>
struct OneForAll {
  const F* from[max_operands] = {};
  void* to[max_operands] = {};
};

constexpr int one_for_all_threads = 1024;

// blockIdx.x is the vector.
template <class T>
__global__ void __launch_bounds__(one_for_all_threads)
    one_for_all_kernel(std::int64_t columns, const __grid_constant__ OneForAll<Compute<T>> vectors) {
  wait_for_kernel_before();
  const Compute<T>* from = vectors.from[blockIdx.x];
  if (from == nullptr) return;
  double sum = 0;
  for (std::int64_t column = threadIdx.x; column < columns; column += one_for_all_threads)
    sum += static_cast<double>(from[column]);
  __shared__ double of_thread[one_for_all_threads];
  of_thread[threadIdx.x] = sum;
  for (int others = one_for_all_threads / 2; others > 0; others /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < others) of_thread[threadIdx.x] += of_thread[threadIdx.x + others];
  }
  if (threadIdx.x == 0) narrow(static_cast<Compute<T>>(of_thread[0]), *static_cast<T*>(vectors.to[blockIdx.x]));
}

}  // namespace tailor::cuda
