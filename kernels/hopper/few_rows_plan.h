// How a problem of few rows is cut, and whether it is worth it.
#pragma once
#include <algorithm>
#include <iterator>

#include "plan.h"

namespace tailor::hopper {

struct FewRowsPlan {
  int tile_rows = 0;
  int parts = 0;  // of K, a block each
  double time = 0;
};

// How many clusters of so many blocks an H200 holds at a time, a block a processor: a cluster lies in one of its groups of up to
// 18 processors.
constexpr int clusters_at_once[] = {132, 66, 40, 30, 22, 19, 14, 12};
constexpr int most_parts = static_cast<int>(std::size(clusters_at_once));

// Microseconds, fitted to what an H200 took for 17 sizes of weights with 1 to 512 rows. A step is 32 numbers of K. A block by itself waits
// for one instruction after another; all blocks together wait for memory, or the matrix instructions.
inline double step_of_few_rows(int tile_rows, double busy) {
  const double alone = 0.37 + 0.0039 * tile_rows;
  const double together = 0.52 + 0.0039 * tile_rows;
  return std::max(together * busy, alone);
}

inline FewRowsPlan plan_few_rows(const Shape& shape) {
  FewRowsPlan best;
  best.tile_rows = shape.rows <= 32 ? 32 : shape.rows <= 64 ? 64 : 128;
  const std::int64_t steps = ceiling(shape.inner, 32);
  const std::int64_t strips = ceiling(shape.columns, 128) * ceiling(shape.rows, best.tile_rows);
  for (int parts = 1; parts <= most_parts && parts <= steps; ++parts) {
    const std::int64_t scaled = std::int64_t{clusters_at_once[parts - 1]} * shape.processors / clusters_at_once[0];
    const std::int64_t at_once = std::max<std::int64_t>(scaled, 1);
    const auto round = [&](std::int64_t clusters) {
      const double busy = static_cast<double>(clusters * parts) / shape.processors;
      return static_cast<double>(ceiling(steps, parts)) * step_of_few_rows(best.tile_rows, busy);
    };
    const std::int64_t last = strips % at_once;
    const std::int64_t full_rounds = strips / at_once;
    const double start = 8.5 + 0.06 * best.tile_rows + 0.7 * parts;  // with x's thirds, and the tail
    const double time = start + static_cast<double>(full_rounds) * round(at_once) + (last > 0 ? round(last) : 0);
    if (best.parts == 0 || time < best.time) best = {best.tile_rows, parts, time};
  }
  return best;
}

// The same of cuBLAS, rather too little than too much, and the tail after it. It has other kernels for few rows, and one for a
// single row that reads the weight as fast as memory gives it.
inline double few_rows_apart(const Shape& shape) {
  const double weight = static_cast<double>(shape.columns) * static_cast<double>(shape.inner);
  const auto rows = static_cast<double>(shape.rows);
  const auto inner = static_cast<double>(shape.inner);
  if (shape.rows == 1) return 5 + weight * 1.05e-6 + tail_apart(shape);
  if (shape.rows < 16) return 5 + std::max(weight * 1.6e-6, inner * 0.0058) + tail_apart(shape);
  const double of_inner = std::min(0.0055 + 0.00011 * rows, 0.02);
  return 5 + weight * (1.5e-6 + 0.03e-6 * rows) + inner * of_inner + tail_apart(shape);
}

// Null if it gets the kernel, else why not.
inline const char* refuses_few_rows(const Shape& shape, const Matrix& weight, Wanted wanted) {
  if (const char* why = refuses_tail(shape)) return why;
  if (const char* why = refuses_any(shape, wanted)) return why;
  if (also_where_slower(wanted)) return "TAILOR_HOPPER wants tiles of many rows";
  if (const char* why = refuses_matrix(weight)) return why;
  // As many blocks as there can be, 2^23 strips of 32 tiles in 8 parts, are all that a launch takes.
  if (shape.rows > 4096) return "its rows are many";
  if (wanted == Wanted::few_rows) return nullptr;
  if (shape.inner < 256) return "its products are so short that thirds gain nothing";
  const double time = plan_few_rows(shape).time;
  if (time > few_rows_apart(shape)) return "it has too few columns for the processors";
  if (time > estimate_of_halves(shape).whole && refuses_halves(shape, wanted) == nullptr)
    return "it has so many rows that halves are faster";
  return nullptr;
}

}  // namespace tailor::hopper
