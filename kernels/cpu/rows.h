// The tail in one pass: chains without a norm, and batch norms whose statistics are known.
#pragma once
#include "block.h"

namespace tailor::cpu::TAILOR_ISA {

// `Rows` rows of a block, from `y` to `out`.
template <int Rows, class Chain, class T>
TAILOR_INLINE void finish_rows(const Block<Chain, T>& block, const Raw<T>* y, Raw<T>* out, std::int64_t stride) {
  constexpr int width = lanes<Compute<T>>;
  const auto finish = [&](int at, const Values<Compute<T>, Rows>& tile) __attribute__((always_inline)) {
    Evaluation<Chain, T, Rows> evaluation(block, at, tile);
    return Formula<Chain>::fold(evaluation);
  };
  int at = 0;
  for (; at + width <= block.count; at += width)
    store_rows<T, Rows>(out + at, stride, finish(at, load_rows<T, Rows>(y + at, stride)));
  if (const int left = block.count - at; left > 0)
    store_rows<T, Rows>(out + at, stride, finish(at, load_rows<T, Rows>(y + at, stride, left)), left);
}

// Rows of some columns. `means` and `inverse_deviations`: of the batch, or null. A row of `tail` is `times` rows of what its
// operands are for.
template <class Chain, class T>
void finish_block(const Tail& tail, std::int64_t first, int count, std::int64_t row, std::int64_t end, int times,
                  const Compute<T>* means, const double* inverse_deviations) {
  Block<Chain, T> block(tail, first, count / times);
  if constexpr (has_batch_norm<Chain>) {
    if (means != nullptr)
      block.take_statistics(means, inverse_deviations);
    else
      block.find_statistics(tail);
  }
  if (times > 1) block.repeat(times);
  const std::int64_t stride = tail.columns;
  const Raw<T>* y = raw<T>(tail.y) + row * stride + first;
  Raw<T>* out = static_cast<Raw<T>*>(tail.out) + row * stride + first;
  for (; row + rows_at_once <= end; row += rows_at_once, y += rows_at_once * stride, out += rows_at_once * stride)
    finish_rows<rows_at_once>(block, y, out, stride);
  for (; row < end; ++row, y += stride, out += stride) finish_rows<1>(block, y, out, stride);
}

template <class Chain, class T>
void run_rows(const Tail& tail, const Parallel& parallel, int times, const Compute<T>* means,
              const double* inverse_deviations) {
  const auto work = [&](std::int64_t first, int count, std::int64_t row, std::int64_t end) {
    finish_block<Chain, T>(tail, first, count, row, end, times, means, inverse_deviations);
  };
  for_each_block(parallel, tail.rows, tail.columns, block_width<Compute<T>>, elements_per_thread, work);
}

}  // namespace tailor::cpu::TAILOR_ISA
