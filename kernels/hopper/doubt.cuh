// Results that halves may have got wrong are computed again, in float32, from the numbers that were given. A warp does it for
// its own rows, before the tail: so a result is right wherever it goes, nothing is launched and nothing is waited for. Where
// there is no doubt, which is nearly always, it costs a comparison for each result.
#pragma once
#include "block_again.cuh"
#include "storage.cuh"

namespace tailor::hopper {

// Where a thread's results are: two rows, eight apart, and pairs of neighbours in each eight columns.
__device__ __forceinline__ constexpr int row_of(int index) { return index / 2 % 2; }
__device__ __forceinline__ constexpr int column_of(int index) { return index / 4 * 8 + index % 2; }

// `apart`: lower halves' products have sums of their own. Those of the higher ones alone may then need more digits than all together.
template <bool apart = false>
struct Doubt {
  // Of a thread's results. They come to the front in turns: registers have no index at run time, and a program for each would be long.
  static constexpr int at_a_time = 16;

  const Halves& halves;
  const std::int64_t rows, columns;  // of the result
  const int row, column;             // of the tile: the warp's first row, the first column
  const int lane;

  __device__ __forceinline__ int thread_row(int index) const { return row + lane / 4 + 8 * row_of(index); }
  __device__ __forceinline__ int thread_column(int index) const { return column + lane % 4 * 2 + column_of(index); }

  // Whether a result stands: what is known of its two rows may be of all columns of a tile, the worst of each. What is lost must be
  // little beside the sum of the products' magnitudes, of which two lower bounds are known: the result's own magnitude, and what the
  // numbers come to that are heavy in both rows.
  __device__ __forceinline__ bool is_sure(float magnitude, const RowFacts& of_row, const RowFacts& of_column) const {
    const float lost = of_row.doubt + of_column.doubt;
    if (lost == -INFINITY) return true;  // one of them is zero, and the other no infinity
    const auto inner = static_cast<float>(halves.inner);
    constexpr float share = 1.0f / whole_share;
    const float heavy_in_both = static_cast<float>(of_row.heavy + of_column.heavy - whole_share) * share * inner;
    const float strong_in_both = (of_row.strong * share) * (of_column.strong * share) * inner;
    // Where lines have powers of two of their own, a magnitude does not tell of digits.
    const bool may_be_exact =
        of_row.short_of_digits * of_column.short_of_digits >= (apart ? too_short_apart : too_short) &&
        (magnitude < (apart ? least_inexact_apart : least_inexact) || halves.lines != nullptr);
    return fmaxf(magnitude, heavy_in_both * of_both_heavy) >= lost && strong_in_both > few_products && !may_be_exact;
  }

  // Whether any of the warp's results is doubted. Those that are become NaN, which no sum of halves is.
  template <int results_of_thread>
  __device__ __forceinline__ bool mark(float (&sums)[results_of_thread], const RowFacts (&of_rows)[2],
                                       const ColumnFacts<2, 2 * results_of_thread>& facts) const {
    // Most rows are so dense that their results stand whatever they are.
    if (__all_sync(~0u, is_sure(0, of_rows[0], facts.worst) && is_sure(0, of_rows[1], facts.worst))) return false;
    float least[2] = {INFINITY, INFINITY};
#pragma unroll
    for (int i = 0; i < results_of_thread; ++i) least[row_of(i)] = fminf(least[row_of(i)], fabsf(sums[i]));
    bool sure = true;
#pragma unroll
    for (int i = 0; i < 2; ++i) sure &= is_sure(least[i], of_rows[i], facts.worst);
    if (__all_sync(~0u, sure)) return false;
    bool any = false;
#pragma unroll 1
    for (int from = 0; from < results_of_thread; from += at_a_time, take_turns<at_a_time>(sums)) {
#pragma unroll
      for (int i = 0; i < at_a_time; ++i) {
        const int column_here = thread_column(from + i);
        const bool is_there = thread_row(i) < rows && column_here < columns;
        if (!is_there || is_sure(fabsf(sums[i]), of_rows[row_of(i)], facts.of[column_here - column])) continue;
        sums[i] = NAN;
        any = true;
      }
    }
    return __any_sync(~0u, any);
  }

  __device__ __forceinline__ float one(int x_row, int weight_row) const {
    return sum_of_products(halves.x, x_row, halves.weight, weight_row, halves.inner, lane);
  }

  // Replaces what is marked. `results` are what the sums stand for by now.
  template <int results_of_thread>
  __device__ __forceinline__ void settle(float (&results)[results_of_thread], StepAgain& step) const {
#pragma unroll 1
    for (int from = 0; from < results_of_thread; from += at_a_time, take_turns<at_a_time>(results)) {
      std::uint32_t doubted = 0;
#pragma unroll
      for (int i = 0; i < at_a_time; ++i) doubted |= isnan(results[i]) ? 1u << i : 0;
      if (BlockAgain::is_worth_it(doubted, halves.x, halves.weight)) {
        static_assert(at_a_time == 2 * BlockAgain::own_columns);
        BlockAgain::Results again;
        BlockAgain(step, halves.x, row, halves.weight, column + column_of(from), halves.inner, lane).compute(again);
#pragma unroll
        for (int i = 0; i < at_a_time; ++i)
          if (isnan(results[i])) results[i] = again[row_of(i)][column_of(i) / 8 * 2 + i % 2];
        continue;
      }
#pragma unroll 1
      for (int i = 0; i < at_a_time; ++i) {
        const bool mine = (doubted >> i & 1) != 0;
        float result = 0;
        for (std::uint32_t who = __ballot_sync(~0u, mine); who != 0; who &= who - 1) {
          const int lane_of_it = __ffs(static_cast<int>(who)) - 1;
          const float found =
              one(__shfl_sync(~0u, thread_row(i), lane_of_it), __shfl_sync(~0u, thread_column(from + i), lane_of_it));
          if (lane == lane_of_it) result = found;
        }
#pragma unroll
        for (int j = 0; j < at_a_time; ++j)
          if (mine && j == i) results[j] = result;
      }
    }
  }
};

}  // namespace tailor::hopper
