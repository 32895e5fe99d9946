// The tail of a group norm. A row's groups are kept in the first-level cache, as the norm reads them, until their
// statistics are known: a mean, then squared distances from it, so that a mean far above the spread costs no digits.
#pragma once
#include "block.h"

namespace tailor::cpu::TAILOR_ISA {

// The sum of term(v) over `count` values. Vectors are read whole: there is room after the last value.
template <class F, class Term>
TAILOR_INLINE F sum_of_terms(const F* values, int count, Term term) {
  Lanes<F> even{};
  Lanes<F> odd{};
  int i = 0;
  for (; i + 2 * lanes<F> <= count; i += 2 * lanes<F>) {
    even += term(load<F>(values + i));
    odd += term(load<F>(values + i + lanes<F>));
  }
  for (; i + lanes<F> <= count; i += lanes<F>) even += term(load<F>(values + i));
  if (i < count) odd += first<F>(term(load<F>(values + i)), count - i);
  return sum<F>(even + odd);
}

// A power of two that keeps the sum of `count` numbers in range where their mean is. Multiplying by it is exact.
template <class F>
TAILOR_INLINE F downscale(std::int64_t count) {
  F scale = 1;
  for (; count > 1; count = (count + 1) / 2) scale /= 2;
  return scale;
}

// The statistics of a group, from a point near its mean and the sums of the distances from it and of their squares. A mean
// is rounded, and what it lost is in the distances: without that, a group of equal values would not give 0.
template <class F>
void conclude_group(F near_mean, double distances, double squares, std::int64_t width, double eps, F& mean,
                    F& inverse_deviation) {
  const double count = static_cast<double>(width);
  if (distances - distances != 0) distances = 0;  // the sum overflowed: there the mean need not be infinite
  const double variance = (squares - distances * distances / count) / count;
  mean = static_cast<F>(static_cast<double>(near_mean) + distances / count);
  inverse_deviation = static_cast<F>(1 / root((variance < 0 ? 0 : variance) + eps));
}

template <class F>
void find_group_statistics(const F* values, int width, int groups, double eps, F* mean, F* inverse_deviation) {
  const F down = downscale<F>(width);
  for (int g = 0; g < groups; ++g)
    mean[g] = sum_of_terms(values + g * width, width, [=](Lanes<F> v) { return v * down; });
  const F part = down * static_cast<F>(width);
  for (int g = 0; g < groups; ++g) {
    const F m = mean[g] / part;
    const F distances = sum_of_terms(values + g * width, width, [=](Lanes<F> v) { return v - m; });
    const F squares = sum_of_terms(values + g * width, width, [=](Lanes<F> v) { return (v - m) * (v - m); });
    conclude_group(m, static_cast<double>(distances), static_cast<double>(squares), width, eps, mean[g],
                   inverse_deviation[g]);
  }
}

// Repeats each group's number for its columns; writes up to a vector more than that.
template <class F>
void spread(const F* of_group, int width, int groups, F* to) {
  for (int g = 0; g < groups; ++g, to += width)
    for (int i = 0; i < width; i += lanes<F>) store<F>(to + i, all(of_group[g]));
}

// Whole groups of a row lie in one block.
template <class Chain, class T>
struct NarrowGroups {
  using F = Compute<T>;
  static constexpr int room = block_width<F> + lanes<F>;

  const Tail& tail;
  const int width;  // of a group
  Block<Chain, T> block;
  alignas(64) F values[room];  // what the norm reads
  alignas(64) F mean[room];    // by group, or by column
  alignas(64) F inverse_deviation[room];
  alignas(64) F by_group[2][block_width<F>];

  NarrowGroups(const Tail& t, int group_width, std::int64_t first, int count, int times)
      : tail(t), width(group_width), block(t, first, count / times) {
    if (times > 1) block.repeat(times);
    store<F>(values + count, Lanes<F>{});
  }

  // What the norm reads of one row, and its statistics, a number for each column.
  void find_statistics(const Raw<T>* y) {
    const int groups = block.count / width;
    for_each_vector(
        y, [&](int at, const Values<F, 1>& tile, auto) __attribute__((always_inline)) {
          Evaluation<Chain, T, 1> evaluation(block, at, tile);
          store<F>(values + at, evaluation.before_norm().at[0][0]);
        });
    find_group_statistics(values, width, groups, tail.norm.eps, by_group[0], by_group[1]);
    spread(by_group[0], width, groups, mean);
    spread(by_group[1], width, groups, inverse_deviation);
  }

  // One row.
  void run(const Raw<T>* y, Raw<T>* out) {
    find_statistics(y);
    for_each_vector(
        y, [&](int at, const Values<F, 1>& tile, auto count) __attribute__((always_inline)) {
          const auto scale = load<F>(block.scale + at) * load<F>(inverse_deviation + at);
          Evaluation<Chain, T, 1> before(block, at, tile);
          const Values<F, 1> normed = before.normalise({{{load<F>(values + at)}}}, column(mean + at), scale);
          Evaluation<Chain, T, 1> evaluation(block, at, tile, normed);
          store_rows<T, 1>(out + at, 0, After<Chain>::fold(evaluation), count);
        });
  }

  template <class Work>
  TAILOR_INLINE void for_each_vector(const Raw<T>* y, Work work) const {
    int at = 0;
    for (; at + lanes<F> <= block.count; at += lanes<F>) work(at, load_rows<T, 1>(y + at, 0), Whole{});
    if (at < block.count) work(at, load_rows<T, 1>(y + at, 0, block.count - at), block.count - at);
  }
};

// Groups wider than a block are read three times, a few rows at a time so that the operands are not.
template <class Chain, class T>
struct WideGroups {
  using F = Compute<T>;
  static constexpr int most_rows = 8;

  const Tail& tail;
  const std::int64_t first;  // column
  const std::int64_t width;

  // Calls work(row, block, its first column, place, y, vector's columns), and end_of_row(row) at the end of each block's row.
  template <class Work, class EndOfRow>
  void for_each_vector(const Raw<T>* y, int rows, Work work, EndOfRow end_of_row) const {
    for (std::int64_t begin = 0; begin < width; begin += block_width<F>) {
      const std::int64_t left = width - begin;
      const Block<Chain, T> block(tail, first + begin, static_cast<int>(left < block_width<F> ? left : block_width<F>));
      for (int row = 0; row < rows; ++row) {
        const Raw<T>* from = y + row * tail.columns + begin;
        int at = 0;
        for (; at + lanes<F> <= block.count; at += lanes<F>)
          work(row, block, begin, at, load_rows<T, 1>(from + at, 0), Whole{});
        if (at < block.count)
          work(row, block, begin, at, load_rows<T, 1>(from + at, 0, block.count - at), block.count - at);
        end_of_row(row);
      }
    }
  }

  // Sums of one block are added up in double, or a wide group would cost digits.
  void find_statistics(const Raw<T>* y, int rows, F* mean, F* inverse_deviation) const {
    Lanes<F> sum_of_block{};
    Lanes<F> squares_of_block{};
    double sums[most_rows] = {};
    double squares[most_rows] = {};
    const F down = downscale<F>(width);  // that the sum of large numbers stays in range
    for_each_vector(
        y, rows,
        [&](int, const auto& block, std::int64_t, int at, const auto& tile, auto count) {
          Evaluation<Chain, T, 1> evaluation(block, at, tile);
          sum_of_block += only<F>(evaluation.before_norm().at[0][0] * down, count);
        },
        [&](int row) {
          sums[row] += static_cast<double>(sum<F>(sum_of_block));
          sum_of_block = Lanes<F>{};
        });
    for (int row = 0; row < rows; ++row) {
      mean[row] = static_cast<F>(sums[row] / (static_cast<double>(down) * static_cast<double>(width)));
      sums[row] = 0;
    }
    for_each_vector(
        y, rows,
        [&](int row, const auto& block, std::int64_t, int at, const auto& tile, auto count) {
          Evaluation<Chain, T, 1> evaluation(block, at, tile);
          const Lanes<F> off = evaluation.before_norm().at[0][0] - mean[row];
          sum_of_block += only<F>(off, count);
          squares_of_block += only<F>(off * off, count);
        },
        [&](int row) {
          sums[row] += static_cast<double>(sum<F>(sum_of_block));
          squares[row] += static_cast<double>(sum<F>(squares_of_block));
          sum_of_block = squares_of_block = Lanes<F>{};
        });
    for (int row = 0; row < rows; ++row)
      conclude_group(mean[row], sums[row], squares[row], width, tail.norm.eps, mean[row], inverse_deviation[row]);
  }

  void run(const Raw<T>* y, Raw<T>* out, int rows) const {
    F mean[most_rows];
    F inverse_deviation[most_rows];
    find_statistics(y, rows, mean, inverse_deviation);
    const auto finish = [&](int row, const auto& block, std::int64_t begin, int at, const auto& tile, auto count) {
      Evaluation<Chain, T, 1> before(block, at, tile);
      const auto scale = load<F>(block.scale + at) * inverse_deviation[row];
      const Values<F, 1> normed = before.normalise(before.before_norm(), all(mean[row]), scale);
      Evaluation<Chain, T, 1> evaluation(block, at, tile, normed);
      store_rows<T, 1>(out + row * tail.columns + begin + at, 0, After<Chain>::fold(evaluation), count);
    };
    for_each_vector(y, rows, finish, [](int) {});
  }
};

// A row of `tail` is `times` rows of what its operands are for.
template <class Chain, class T>
void run_groups(const Tail& tail, const Parallel& parallel, int times) {
  const std::int64_t width = tail.columns / tail.norm.groups;
  const Raw<T>* y = raw<T>(tail.y);
  Raw<T>* out = static_cast<Raw<T>*>(tail.out);
  constexpr int most = block_width<Compute<T>>;
  if (width > most) {
    const auto work = [&](std::int64_t first, int, std::int64_t row, std::int64_t end) {
      const WideGroups<Chain, T> groups{tail, first, width};
      for (int rows = 0; row < end; row += rows) {
        rows = static_cast<int>(end - row < groups.most_rows ? end - row : groups.most_rows);
        groups.run(y + row * tail.columns + first, out + row * tail.columns + first, rows);
      }
    };
    for_each_block(parallel, tail.rows, tail.columns, width, elements_per_thread, work);
  } else {
    const auto work = [&](std::int64_t first, int count, std::int64_t row, std::int64_t end) {
      NarrowGroups<Chain, T> groups(tail, static_cast<int>(width), first, count, times);
      for (; row < end; ++row) groups.run(y + row * tail.columns + first, out + row * tail.columns + first);
    };
    for_each_block(parallel, tail.rows, tail.columns, most / width * width, elements_per_thread, work);
  }
}

}  // namespace tailor::cpu::TAILOR_ISA
