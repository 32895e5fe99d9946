// Batch statistics: mean and variance of each column of what the norm reads. In each chunk of rows distances are taken from
// the mean of its first rows, which is within the chunk's own spread: their sums, and those of their squares, are small, so
// that a mean far above the spread costs no digits. A few rows are added up in the type that is computed in, and what they
// come to in double; the chunks are merged in double too (Chan).
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
inline void merge(const Moments& into, std::int64_t before, const Moments& next, std::int64_t added, int count) {
  const double share = static_cast<double>(added) / static_cast<double>(before + added);
  const double weight = static_cast<double>(before) * share;
#pragma GCC ivdep
  for (int i = 0; i < count; ++i) {
    const double apart = next.mean[i] - into.mean[i];
    into.sum[i] += next.sum[i];
    into.squares[i] += next.squares[i] + apart * apart * weight;
    into.mean[i] += apart * share;
  }
}

// One block's moments, of one chunk after another.
template <class Chain, class T>
struct Gathering {
  using F = Compute<T>;
  static constexpr int most_recent = 32;  // rows

  const Block<Chain, T> block;
  const std::int64_t stride;
  int recent_rows = 0;
  alignas(64) F pivot[gathering_width];      // what distances are taken from
  alignas(64) F distances[gathering_width];  // of recent rows
  alignas(64) F squares[gathering_width];
  alignas(64) double all_distances[gathering_width];
  alignas(64) double all_squares[gathering_width];

  Gathering(const Tail& tail, std::int64_t first, int count) : block(tail, first, count), stride(tail.columns) {}

  void run(const Raw<T>* y, std::int64_t rows, const Moments& into) {
    if (rows >= 4)
      find_pivot<4>(y);
    else
      find_pivot<1>(y);
    fill(F(0), block.count, distances);
    fill(F(0), block.count, squares);
    fill(0.0, block.count, all_distances);
    fill(0.0, block.count, all_squares);
    std::int64_t row = 0;
    for (; row + 8 <= rows; row += 8) take<8>(y + row * stride);
    for (; row < rows; ++row) take<1>(y + row * stride);
    put_down();
    for (int i = 0; i < block.count; ++i) {
      const double from = static_cast<double>(pivot[i]);
      const double mean = all_distances[i] / static_cast<double>(rows);
      const double rest = all_squares[i] - all_distances[i] * mean;
      into.sum[i] = from * static_cast<double>(rows) + all_distances[i];
      into.mean[i] = from + mean;
      into.squares[i] = rest < 0 ? 0 : rest;
    }
    for (int at = 0; at < block.count; at += lanes<F>) mend_sums(y, rows, at, into.sum + at);
  }

 private:
  // Calls work(at, what the norm reads of `Rows` rows).
  template <int Rows, class Work>
  TAILOR_INLINE void for_each_vector(const Raw<T>* y, Work work) const {
    const auto each = [&](int at, auto count) __attribute__((always_inline)) {
      const auto tile = load_rows<T, Rows>(y + at, stride, count);
      Evaluation<Chain, T, Rows> evaluation(block, at, tile);
      work(at, evaluation.before_norm());
    };
    int at = 0;
    for (; at + lanes<F> <= block.count; at += lanes<F>) each(at, Whole{});
    if (at < block.count) each(at, block.count - at);
  }
  template <int Rows>
  void find_pivot(const Raw<T>* y) {
    for_each_vector<Rows>(
        y, [&](int at, const Values<F, Rows>& v) __attribute__((always_inline)) {
          // Times a power of two, which is exact; scaled first, the sum of large numbers stays in range.
          store<F>(pivot + at, sum_of_rows<0, Rows, F>(map(
                                   v, [](auto x, F part) { return x * part; }, F(1) / Rows)));
        });
  }
  template <int Rows>
  void take(const Raw<T>* y) {
    for_each_vector<Rows>(
        y, [&](int at, const Values<F, Rows>& v) __attribute__((always_inline)) {
          const auto off = map(
              v, [](auto x, auto from) { return x - from; }, load<F>(pivot + at));
          store<F>(distances + at, load<F>(distances + at) + sum_of_rows<0, Rows, F>(off));
          Lanes<F> sum = load<F>(squares + at);
          for (int row = 0; row < Rows; ++row) sum += off.at[row][0] * off.at[row][0];  // one instruction each
          store<F>(squares + at, sum);
        });
    recent_rows += Rows;
    if (recent_rows >= most_recent) put_down();
  }
  void put_down() {
    recent_rows = 0;
#pragma GCC ivdep
    for (int i = 0; i < block.count; ++i) {
      all_distances[i] += static_cast<double>(distances[i]);
      all_squares[i] += static_cast<double>(squares[i]);
    }
    fill(F(0), block.count, distances);
    fill(F(0), block.count, squares);
  }
  // Where distances were infinite the mean need not be, nor NaN where it is infinite.
  void mend_sums(const Raw<T>* y, std::int64_t rows, int at, double* sum) const {
    const int count = block.count - at < lanes<F> ? block.count - at : lanes<F>;
    bool finite = true;
    for (int i = 0; i < count; ++i) finite = finite && sum[i] - sum[i] == 0;
    if (finite) return;
    for (int i = 0; i < count; ++i) sum[i] = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto tile = load_rows<T, 1>(y + row * stride + at, stride, count);
      Evaluation<Chain, T, 1> evaluation(block, at, tile);
      const Lanes<F> v = evaluation.before_norm().at[0][0];
      for (int i = 0; i < count; ++i) sum[i] += static_cast<double>(v[i]);
    }
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
    merge(all, before, memory.of_chunk(chunk, first), left < chunks.rows ? left : chunks.rows, count);
  }
  const double rows = static_cast<double>(tail.rows);
  F* mean = memory.means<F>() + first;
  double* inverse_deviation = memory.inverse_deviations() + first;
#pragma GCC ivdep
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

// The moments of some columns, of some chunks.
template <class Chain, class T>
void gather(const Tail& tail, const BatchMemory& memory, std::int64_t first, int count, std::int64_t chunk,
            std::int64_t end) {
  const Chunks chunks = chunks_of(tail.rows);
  Gathering<Chain, T> gathering(tail, first, count);
  for (; chunk < end; ++chunk) {
    const std::int64_t row = chunk * chunks.rows;
    const std::int64_t left = tail.rows - row;
    gathering.run(raw<T>(tail.y) + row * tail.columns + first, left < chunks.rows ? left : chunks.rows,
                  memory.of_chunk(chunk, first));
  }
}

template <class Chain, class T>
void find_batch_statistics(const Tail& tail, const Parallel& parallel, const BatchMemory& memory) {
  const Chunks chunks = chunks_of(tail.rows);
  const auto gather_chunks = [&](std::int64_t first, int count, std::int64_t chunk, std::int64_t end) {
    gather<Chain, T>(tail, memory, first, count, chunk, end);
  };
  for_each_block(parallel, chunks.count, tail.columns, gathering_width, ceiling(elements_per_thread, chunks.rows),
                 gather_chunks);
  const auto merge_chunks = [&](std::int64_t first, int count, std::int64_t, std::int64_t) {
    conclude<T>(tail, memory, first, count);
  };
  for_each_block(parallel, 1, tail.columns, gathering_width, ceiling(elements_per_thread, chunks.count), merge_chunks);
}

}  // namespace tailor::cpu::TAILOR_ISA
