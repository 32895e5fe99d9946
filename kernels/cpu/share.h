// How the work on a tail is shared out, known to the kernels and to whoever gives them memory.
#pragma once
#include "../arithmetic.h"
#include "../tail.h"

namespace tailor::cpu {

constexpr TAILOR_INLINE std::int64_t ceiling(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Batch statistics: the rows are cut into chunks, the same whatever the number of threads, and what they come to is merged
// in their order. So the result is the same each time.
struct Chunks {
  std::int64_t count;
  std::int64_t rows;  // of each but the last
};

constexpr TAILOR_INLINE Chunks chunks_of(std::int64_t rows) {
  constexpr std::int64_t least = 64, most = 64;
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
