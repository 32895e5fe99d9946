// The sums over the rows that a backward makes. A few rows are added up in the type that is computed in, and what they come
// to in double, so that a large batch costs no digits. Each chunk of rows has its part of every sum, and the parts are added
// up in their order: the result is the same for any number of threads.
#pragma once
#include "../gradient.h"
#include "block.h"

namespace tailor::cpu::TAILOR_ISA {

inline constexpr int summing_width = 256;  // columns of a block, fewer than elsewhere: there is more to keep for each

// Which sums a phase makes.
template <class Chain, Phase phase>
struct Made {
  bool at[Sums<Chain>::count] = {};
  constexpr Made() {
    at[Sums<Chain>::bias] = phase != Phase::norm_sums;
    for (int i = 0; i < vectors_of<Chain>; ++i) at[Sums<Chain>::vector + i] = makes_vector<Chain>(phase, i);
    for (int i = Sums<Chain>::norm_weight; i < Sums<Chain>::count; ++i) at[i] = phase != Phase::before_norm;
  }
};
template <class Chain, Phase phase>
inline constexpr Made<Chain, phase> made;

// Where a sum goes; null where nobody asks.
template <class Chain>
void* destination_of(const TailGradient& gradient, int sum) {
  if (sum == Sums<Chain>::bias) return gradient.of_bias;
  if (sum == Sums<Chain>::norm_weight) return gradient.of_norm_weight;
  if (sum == Sums<Chain>::norm_bias) return gradient.of_norm_bias;
  return gradient.of_vectors[sum - Sums<Chain>::vector];
}

template <class Chain, Phase phase>
bool is_wanted(const TailGradient& gradient, int sum) {
  const bool by_the_next_phase = phase == Phase::norm_sums && sum >= Sums<Chain>::norm_weight;
  return made<Chain, phase>.at[sum] && (by_the_next_phase || destination_of<Chain>(gradient, sum) != nullptr);
}

// Where everything lies in the workspace: [chunk][sum][columns], and once they are added up the norm's sums and those of vectors that
// are one value for all columns.
template <class Chain, class T>
struct SumMemory {
  double* base;
  int times;              // as in_wide_rows has it
  std::int64_t columns;   // of a part, padded
  std::int64_t in_total;  // columns of the tail, padded
  std::int64_t least;     // rows of a chunk
  std::int64_t wide_chunks;
  std::int64_t chunks;

  SumMemory(const Tail& tail, void* workspace) : base(static_cast<double*>(workspace)), times(times_of<T>(tail)) {
    columns = padded(tail.columns * times);
    in_total = padded(tail.columns);
    // Few rows of many columns are work enough for a thread; where a group is one block, threads can only share out rows.
    const bool is_wide = has_group_norm<Chain> && tail.columns / tail.norm.groups > block_width<Compute<T>>;
    least = is_wide ? 16 : 64;
    wide_chunks = chunks_of(tail.rows / times).count;
    const std::int64_t rest = tail.rows % times;
    chunks = wide_chunks + (rest > 0 ? chunks_of(rest).count : 0);
  }
  Chunks chunks_of(std::int64_t rows) const { return cpu::chunks_of(rows, least); }
  double* part(std::int64_t chunk, int sum) const { return base + (chunk * Sums<Chain>::count + sum) * columns; }
  double* total(int sum) const {
    return base + chunks * Sums<Chain>::count * columns + (sum - Sums<Chain>::vector) * in_total;
  }
  std::int64_t bytes() const {
    return (chunks * Sums<Chain>::count * columns + (vectors_of<Chain> + 2) * in_total) * 8;
  }
};

// The sums of one block in one chunk.
template <class Chain, class T, Phase phase>
struct BlockSums {
  using F = Compute<T>;
  static constexpr int count = Sums<Chain>::count;

  double* part[count];  // null: nobody asks
  int columns = 0;
  int rows = 0;  // that are in `recent`
  alignas(64) F recent[count][block_width<F> + lanes<F>];

  // From here on the sums are those of this block and chunk: they begin at 0, or go on from where they were put down.
  void begin(const SumMemory<Chain, T>& memory, const TailGradient& gradient, std::int64_t chunk, std::int64_t first,
             int columns_of_block, bool at_zero = true) {
    columns = columns_of_block;
    for (int sum = 0; sum < count; ++sum) {
      fill(F(0), columns, recent[sum]);
      part[sum] = is_wanted<Chain, phase>(gradient, sum) ? memory.part(chunk, sum) + first : nullptr;
      for (int i = 0; at_zero && part[sum] != nullptr && i < columns; ++i) part[sum][i] = 0;
    }
  }
  TAILOR_INLINE void add(int sum, int at, Lanes<F> value) {
    store<F>(recent[sum] + at, load<F>(recent[sum] + at) + value);
  }
  void took(int more) {
    constexpr int most = 8;
    rows += more;
    if (rows >= most) put_down();
  }
  void put_down() {
    rows = 0;
    for (int sum = 0; sum < count; ++sum) {
      if (part[sum] == nullptr) continue;
#pragma GCC ivdep
      for (int i = 0; i < columns; ++i) part[sum][i] += static_cast<double>(recent[sum][i]);
      fill(F(0), columns, recent[sum]);
    }
  }
};

// Where somebody only looks.
struct NoSums {
  template <class Value>
  TAILOR_INLINE void add(int, int, Value) {}
};

// Adds up the parts of all the sums that a phase makes.
template <class Chain, class T, Phase phase>
void add_up(const Tail& tail, const TailGradient& gradient, const SumMemory<Chain, T>& memory,
            const Parallel& parallel) {
  using F = Compute<T>;
  constexpr int width = summing_width;
  const auto is_one_for_all = [&](int sum) {
    const int vector = sum - Sums<Chain>::vector;
    return vector >= 0 && vector < vectors_of<Chain> && !tail.vectors[vector].per_column;
  };
  const auto add = [&](std::int64_t first, int count, std::int64_t, std::int64_t) {
    alignas(64) double total[width];
    alignas(64) F numbers[width];
    for (int sum = 0; sum < Sums<Chain>::count; ++sum) {
      if (!is_wanted<Chain, phase>(gradient, sum)) continue;
      for (int i = 0; i < count; ++i) total[i] = 0;
      for (std::int64_t chunk = 0; chunk < memory.chunks; ++chunk)
        for (int row = 0; row < (chunk < memory.wide_chunks ? memory.times : 1); ++row) {
          const double* part = memory.part(chunk, sum) + row * tail.columns + first;
          for (int i = 0; i < count; ++i) total[i] += part[i];
        }
      if (is_one_for_all(sum) || (phase == Phase::norm_sums && sum >= Sums<Chain>::norm_weight))
        for (int i = 0; i < count; ++i) memory.total(sum)[first + i] = total[i];
      for (int i = 0; i < count; ++i) numbers[i] = static_cast<F>(total[i]);
      void* to = destination_of<Chain>(gradient, sum);
      if (to != nullptr && !is_one_for_all(sum)) write<T>(numbers, count, static_cast<Raw<T>*>(to) + first);
    }
  };
  for_each_block(parallel, 1, tail.columns, width, ceiling(elements_per_thread, memory.chunks * Sums<Chain>::count),
                 add);
  for (int sum = Sums<Chain>::vector; sum < Sums<Chain>::norm_weight; ++sum) {
    if (!is_one_for_all(sum) || !is_wanted<Chain, phase>(gradient, sum)) continue;
    double all = 0;
    for (std::int64_t column = 0; column < tail.columns; ++column) all += memory.total(sum)[column];
    alignas(64) const F number[lanes<F>] = {static_cast<F>(all)};
    write<T>(number, 1, static_cast<Raw<T>*>(destination_of<Chain>(gradient, sum)));
  }
}

}  // namespace tailor::cpu::TAILOR_ISA
