// How the work on a tail is shared out, known to the kernels and to whoever gives them memory.
#pragma once
#include "../ceiling.h"
#include "../tail.h"

namespace tailor::cpu {

// How many rows of few columns to take for one: until whole vectors fill it, and it is worth a loop of its own.
constexpr TAILOR_INLINE int rows_in_one(std::int64_t columns, int lanes, int most_columns) {
  constexpr int enough = 128;
  if (columns >= enough) return 1;
  int rows = 1;
  while (rows * columns % lanes != 0) rows *= 2;  // as many lanes at most, a power of two
  while (rows * columns < enough) rows *= 2;
  return rows * columns <= most_columns ? rows : 1;
}

// Sums over the rows: these are cut into chunks, the same whatever the number of threads, and what the chunks come to is
// merged in their order. So the result is the same each time.
struct Chunks {
  std::int64_t count;
  std::int64_t rows;  // of each but the last
};

constexpr TAILOR_INLINE Chunks chunks_of(std::int64_t rows, std::int64_t least = 64) {
  constexpr std::int64_t most = 64;
  const std::int64_t each = ceiling(ceiling(rows, most), least) * least;
  return {ceiling(rows, each), each};
}

// The workspace for them, in bytes: three doubles a column for each chunk, and the result, two numbers a column.
constexpr TAILOR_INLINE std::int64_t padded(std::int64_t columns) {
  return ceiling(columns, 16) * 16;
}  // to whole vectors
constexpr TAILOR_INLINE std::int64_t statistics_bytes(const Tail& tail) {
  return (chunks_of(tail.rows).count * 3 + 2) * padded(tail.columns) * 8;
}

}  // namespace tailor::cpu
