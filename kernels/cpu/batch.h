// Batch statistics: mean and variance of each column of what the norm reads. A tile of rows, in registers, gives a mean and
// the squared distances from it; those of all tiles, and then of all chunks of rows, are merged in double (Chan). Nothing is
// ever subtracted from a large sum, so a mean far above the spread costs no digits.
#pragma once
#include "block.h"

namespace tailor::cpu::TAILOR_ISA {

inline constexpr int gathering_width = 256;  // columns, fewer than elsewhere: there is more to keep for each

struct Moments {
  double* sum;  // beside the mean: it stays right where the mean's way of getting there was infinite
  double* mean;
  double* squares;
};

// What `added` rows came to, merged into what `before` rows did.
template <class F>
void merge(const Moments& into, std::int64_t before, const F* sum, const double* mean, const double* squares,
           std::int64_t added, int count) {
  if (before == 0) {
    for (int i = 0; i < count; ++i) {
      into.sum[i] = static_cast<double>(sum[i]);
      into.mean[i] = mean[i];
      into.squares[i] = squares[i];
    }
    return;
  }
  const double share = static_cast<double>(added) / static_cast<double>(before + added);
  const double weight = static_cast<double>(before) * share;
#pragma GCC ivdep
  for (int i = 0; i < count; ++i) {
    const double apart = mean[i] - into.mean[i];
    into.sum[i] += static_cast<double>(sum[i]);
    into.squares[i] += squares[i] + apart * apart * weight;
    into.mean[i] += apart * share;
  }
}

// Pairwise, in the same order for every column.
template <int First, int Count, class F, int Rows>
TAILOR_INLINE Lanes<F> sum_of_rows(const Values<F, Rows>& tile) {
  if constexpr (Count == 1)
    return tile.at[First][0];
  else
    return sum_of_rows<First, Count / 2, F>(tile) + sum_of_rows<First + Count / 2, Count / 2, F>(tile);
}

template <class Chain, class T>
struct Gathering {
  using F = Compute<T>;

  const Block<Chain, T> block;
  const std::int64_t stride;
  const Moments moments;
  std::int64_t rows = 0;  // so far
  alignas(64) F sum[gathering_width];
  alignas(64) F mean[gathering_width];
  alignas(64) F rest[gathering_width];  // the sum of the distances from the mean, were it not rounded zero
  alignas(64) F squares[gathering_width];
  alignas(64) double exact_mean[gathering_width];
  alignas(64) double exact_squares[gathering_width];

  Gathering(const Tail& tail, std::int64_t first, int count, const Moments& into)
      : block(tail, first, count), stride(tail.columns), moments(into) {}

  template <int Rows>
  void take(const Raw<T>* y) {
    const auto gather = [&](int at, const Values<F, Rows>& tile) __attribute__((always_inline)) {
      Evaluation<Chain, T, Rows> evaluation(block, at, tile);
      const Values<F, Rows> v = evaluation.before_norm();
      // Times a power of two; scaled first, the sum of large numbers stays in range.
      const Lanes<F> m = sum_of_rows<0, Rows, F>(map(
          v, [](auto x, F part) { return x * part; }, F(1) / Rows));
      const auto off = map(
          v, [](auto x, auto mean_of_tile) { return x - mean_of_tile; }, m);
      store<F>(mean + at, m);
      store<F>(rest + at, sum_of_rows<0, Rows, F>(off));
      store<F>(squares + at, sum_of_rows<0, Rows, F>(map(off, [](auto x) { return x * x; })));
    };
    int at = 0;
    for (; at + lanes<F> <= block.count; at += lanes<F>) gather(at, load_rows<T, Rows>(y + at, stride));
    if (at < block.count) gather(at, load_rows<T, Rows>(y + at, stride, block.count - at));
    for (int i = 0; i < block.count; ++i) sum[i] = mean[i] * Rows;
    // A tile's mean is rounded, and what it lost is in the distances from it: merged in double, where it counts.
    for (int i = 0; i < block.count; ++i) {
      const double lost = static_cast<double>(rest[i]) / Rows;
      exact_mean[i] = static_cast<double>(mean[i]) + lost;
      exact_squares[i] = static_cast<double>(squares[i]) - lost * static_cast<double>(rest[i]);
    }
    merge(moments, rows, sum, exact_mean, exact_squares, Rows, block.count);
    rows += Rows;
  }

  void take_all(const Raw<T>* y, std::int64_t count) {
    for (; count >= 8; count -= 8, y += 8 * stride) take<8>(y);
    if (count >= 4) take<4>(y), count -= 4, y += 4 * stride;
    if (count >= 2) take<2>(y), count -= 2, y += 2 * stride;
    if (count >= 1) take<1>(y);
  }
};

// Where everything lies in the workspace.
struct BatchMemory {
  double* base;
  std::int64_t columns;  // padded
  std::int64_t chunks;

  explicit BatchMemory(const Tail& tail)
      : base(static_cast<double*>(tail.norm.workspace)),
        columns(padded(tail.columns)),
        chunks(chunks_of(tail.rows).count) {}
  Moments of_chunk(std::int64_t chunk, std::int64_t column) const {
    double* at = base + 3 * chunk * columns + column;
    return {at, at + columns, at + 2 * columns};
  }
  template <class F>
  F* means() const {
    return reinterpret_cast<F*>(base + 3 * chunks * columns);
  }
  double* inverse_deviations() const { return base + (3 * chunks + 1) * columns; }
};

// running = running · (1 - momentum) + value · momentum
template <class T>
void update(void* running, std::int64_t first, int count, const double* value, double momentum) {
  if (running == nullptr) return;
  alignas(64) Compute<T> numbers[gathering_width];
  Raw<T>* at = static_cast<Raw<T>*>(running) + first;
  read<T>(at, count, numbers);
  for (int i = 0; i < count; ++i)
    numbers[i] = static_cast<Compute<T>>(static_cast<double>(numbers[i]) * (1 - momentum) + value[i] * momentum);
  write<T>(numbers, count, at);
}

// The statistics of some columns from those of their chunks.
template <class T>
void conclude(const Tail& tail, const BatchMemory& memory, std::int64_t first, int count) {
  using F = Compute<T>;
  const Chunks chunks = chunks_of(tail.rows);
  const Moments all = memory.of_chunk(0, first);
  for (std::int64_t chunk = 1; chunk < chunks.count; ++chunk) {
    const std::int64_t before = chunk * chunks.rows;
    const std::int64_t left = tail.rows - before;
    const Moments next = memory.of_chunk(chunk, first);
    merge(all, before, next.sum, next.mean, next.squares, left < chunks.rows ? left : chunks.rows, count);
  }
  const double rows = static_cast<double>(tail.rows);
  F* mean = memory.means<F>() + first;
  double* inverse_deviation = memory.inverse_deviations() + first;
  for (int i = 0; i < count; ++i) {
    all.mean[i] = all.sum[i] / rows;
    mean[i] = static_cast<F>(all.mean[i]);
    inverse_deviation[i] = 1 / root(all.squares[i] / rows + tail.norm.eps);
    all.squares[i] /= rows - 1;
  }
  update<T>(tail.norm.mean, first, count, all.mean, tail.norm.momentum);
  update<T>(tail.norm.var, first, count, all.squares, tail.norm.momentum);
  if (tail.norm.saved != nullptr) {
    F* saved = static_cast<F*>(tail.norm.saved) + first;
    write<F>(mean, count, saved);
    for (int i = 0; i < count; ++i) saved[tail.columns + i] = static_cast<F>(inverse_deviation[i]);
  }
}

template <class Chain, class T>
void find_batch_statistics(const Tail& tail, const Parallel& parallel, const BatchMemory& memory) {
  const Chunks chunks = chunks_of(tail.rows);
  const auto gather = [&](std::int64_t first, int count, std::int64_t chunk, std::int64_t end) {
    for (; chunk < end; ++chunk) {
      const std::int64_t row = chunk * chunks.rows;
      const std::int64_t left = tail.rows - row;
      Gathering<Chain, T> gathering(tail, first, count, memory.of_chunk(chunk, first));
      gathering.take_all(raw<T>(tail.y) + row * tail.columns + first, left < chunks.rows ? left : chunks.rows);
    }
  };
  for_each_block(parallel, chunks.count, tail.columns, gathering_width, ceiling(elements_per_thread, chunks.rows),
                 gather);
  const auto merge_chunks = [&](std::int64_t first, int count, std::int64_t, std::int64_t) {
    conclude<T>(tail, memory, first, count);
  };
  for_each_block(parallel, 1, tail.columns, gathering_width, ceiling(elements_per_thread, chunks.count), merge_chunks);
}

}  // namespace tailor::cpu::TAILOR_ISA
