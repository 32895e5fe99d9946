// What the path `hopper` does where there are no batch statistics: elements are multiplied in tiles or, those of 16 bits and few rows,
// in strips; and whether the faster of these is faster than torch's linear and a tail apart.
#pragma once
#include "strips_plan.h"
#include "tiles_plan.h"

namespace tailor::hopper {

// Microseconds, fitted to what an H200 took for 20 problems of up to 2048 rows; `start` is less since blocks meet sooner. A step is 64
// numbers of K. `busy`: the share of the processors that have blocks. Every block reads its part of the weight, but memory gives it only
// once for all tiles of rows.
inline double step_of_few_elements(int tile_rows, std::int64_t row_tiles, double busy) {
  const double alone = 0.105 + 0.00063 * tile_rows;
  return alone + busy * (0.13 + 0.325 / static_cast<double>(row_tiles));
}

// Tiles of 256 rows were the best only where those of tiles_plan.h are better still.
using RowsOfElements = TileRows<32, 64, 128>;

inline StripsPlan plan_few_elements(const Shape& shape) {
  StripsPlan best;
  const double start = 3.4;
  for (const int tile_rows : RowsOfElements::all) {
    const std::int64_t row_tiles = ceiling(shape.rows, tile_rows);
    const StripsPlan plan = plan_strips(
        shape, tile_rows, ceiling(shape.inner, 64), start,
        [&](double busy) { return step_of_few_elements(tile_rows, row_tiles, busy); },
        [&](int parts) { return 1.4 + 0.036 * tile_rows + 0.4 * parts; });
    if (best.parts == 0 || plan.time < best.time) best = plan;
    if (row_tiles <= 1) break;
  }
  return best;
}

// Whether the kernel computes it. A launch takes less than 2^31 blocks; a strip has eight at most.
inline bool may_be_strips_of_elements(const Shape& shape) {
  constexpr std::int64_t too_many = std::int64_t{1} << 28;
  return shape.element_bytes == 2 && !shape.batch_statistics && !shape.keeps_result &&
         ceiling(shape.columns, 128) * ceiling(shape.rows, RowsOfElements::fewest) < too_many;
}

inline bool takes_strips_of_elements(const Shape& shape, Wanted wanted) {
  if (!may_be_strips_of_elements(shape) || also_where_slower(wanted)) return false;
  if (wanted == Wanted::strips) return true;
  constexpr int most_rows = 2048;  // where times were compared
  return shape.rows <= most_rows && plan_few_elements(shape).time < plan_tiles(shape, wanted).time;
}

inline Estimate estimate(const Shape& shape, Wanted wanted) {
  const bool by_strips = takes_strips_of_elements(shape, wanted);
  return {by_strips ? plan_few_elements(shape).time : plan_tiles(shape, wanted).time + time_to_keep(shape),
          time_of_linear(shape) + tail_apart(shape)};
}

// Null if it gets one of the kernels, else why not.
inline const char* refuses(const Shape& shape, Wanted wanted) {
  if (wanted == Wanted::strips && shape.keeps_result) return strips_keep_nothing;
  if (wanted == Wanted::strips && takes_strips_of_elements(shape, wanted)) return refuses_any(shape, wanted);
  return refuses_tiles(shape, wanted, estimate(shape, wanted));
}

}  // namespace tailor::hopper
