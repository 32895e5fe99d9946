// How a problem of few rows is cut, and whether it is worth it.
#pragma once
#include "halves_plan.h"

namespace tailor::hopper {

// Microseconds, fitted to what an H200 took for 39 problems of up to 1824 rows; `start` is 2.3 less since blocks meet sooner. A step is 32
// numbers of K. A block by itself waits for one instruction after another; all blocks together wait for memory, or the matrix
// instructions.
inline double step_of_few_rows(int tile_rows, double busy) {
  const double alone = 0.45 + 0.0037 * tile_rows;
  const double together = 0.52 + 0.0040 * tile_rows;
  return std::max(together * busy, alone);
}

using RowsOfThirds = TileRows<32, 64, 128>;

inline StripsPlan plan_few_rows(const Shape& shape) {
  int tile_rows = RowsOfThirds::most;
  for (const int each : RowsOfThirds::all) {
    if (shape.rows > each) continue;
    tile_rows = each;
    break;
  }
  const double start = 6.7;  // x's thirds are made
  return plan_strips(
      shape, tile_rows, ceiling(shape.inner, 32), start, [&](double busy) { return step_of_few_rows(tile_rows, busy); },
      [&](int parts) { return 0.5 + 0.06 * tile_rows + 0.7 * parts; });
}

// Null if it gets the kernel, else why not.
inline const char* refuses_few_rows(const Shape& shape, const Matrix& weight, Wanted wanted) {
  if (const char* why = refuses_tail(shape)) return why;
  if (const char* why = refuses_any(shape, wanted)) return why;
  if (shape.keeps_result) return strips_keep_nothing;
  if (also_where_slower(wanted)) return "TAILOR_HOPPER wants tiles of many rows";
  if (wanted == Wanted::strips) return "TAILOR_HOPPER wants halves";
  if (const char* why = refuses_matrix(weight)) return why;
  // As many blocks as there can be, 2^23 strips of 32 tiles in 8 parts, are all that a launch takes.
  if (shape.rows > 4096) return "its rows are many";
  if (wanted == Wanted::few_rows) return nullptr;
  if (shape.inner < 256) return "its products are so short that thirds gain nothing";
  const double time = plan_few_rows(shape).time;
  if (time > float32_apart(shape)) return "it has too few columns for the processors";
  if (time > time_of_halves(shape, wanted).whole && refuses_halves(shape, wanted) == nullptr)
    return shape.weight_is_settled ? "its weight is settled, and its halves are faster"
                                   : "it has so many rows that halves are faster";
  return nullptr;
}

}  // namespace tailor::hopper
