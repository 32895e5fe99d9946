// Whether float32 is multiplied by halves: in tiles or, of few rows where the weight is settled or small, in strips.
#pragma once
#include "strips_plan.h"
#include "tiles_plan.h"

namespace tailor::hopper {

// Microseconds of making halves.
inline double split_of(const Shape& shape) {
  const std::int64_t rows = shape.rows + (shape.weight_is_settled ? 0 : shape.columns);
  return 8.0 * static_cast<double>(rows * shape.inner) / 3.6e6;
}

// Of three products of halves in tiles, and that; apart, cuBLAS multiplies on the CUDA cores.
inline Estimate estimate_of_halves(const Shape& shape) {
  const double step = 2.1;  // 64 of the inner dimension
  const double tail = 4;
  const double round = static_cast<double>(ceiling(shape.inner, 64)) * step + tail;
  const double products = 2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.columns * shape.inner);
  Estimate estimate;
  estimate.whole = static_cast<double>(rounds_of(shape)) * round + split_of(shape) + 8;
  estimate.apart = products / 50e6 + tail_apart(shape);
  return estimate;
}

// Microseconds, fitted to what an H200 took for ten sizes of weights with 1 to 512 rows. A step is 64 numbers of K. A block by itself
// waits for its matrix instructions; all blocks together wait for memory, or for the L2 to bring x.
inline double step_of_few_halves(int tile_rows, double busy) {
  const double alone = std::max(0.27 + 0.0047 * tile_rows, 0.0086 * tile_rows);
  const double together = std::max(1.04 + 0.0015 * tile_rows, 0.40 + 0.0082 * tile_rows);
  return std::max(together * busy, alone);
}

inline StripsPlan plan_few_halves(const Shape& shape) {
  StripsPlan best;
  const double start = 11 + split_of(shape) + (shape.weight_is_settled ? 0 : 0.5);
  for (const int tile_rows : {32, 64, 128, 256}) {
    const StripsPlan plan = plan_strips(
        shape, tile_rows, ceiling(shape.inner, 64), [&](double busy) { return step_of_few_halves(tile_rows, busy); },
        [&](int parts) { return start + 0.01 * tile_rows + 0.8 * parts; });
    if (best.parts == 0 || plan.time < best.time) best = plan;
    if (shape.rows <= tile_rows) break;
  }
  return best;
}

// Whether strips are for a problem that halves take.
inline bool takes_strips_of_halves(const Shape& shape, Wanted wanted) {
  if (wanted == Wanted::strips) return true;
  constexpr int most_rows = 1024;  // where times were compared
  if (also_where_slower(wanted) || shape.rows > most_rows) return false;
  return plan_few_halves(shape).time < estimate_of_halves(shape).whole;
}

// The faster way by halves, and what else there is.
inline Estimate time_of_halves(const Shape& shape, Wanted wanted) {
  if (!takes_strips_of_halves(shape, wanted)) return estimate_of_halves(shape);
  return {plan_few_halves(shape).time, few_rows_apart(shape)};
}

inline const char* refuses_halves(const Shape& shape, Wanted wanted) {
  if (const char* why = refuses_tail(shape)) return why;
  if (const char* why = refuses_any(shape, wanted)) return why;
  if (also_where_slower(wanted) || wanted == Wanted::strips) return nullptr;
  if (shape.inner < 256) return "its products are so short that halves gain nothing";
  const Estimate time = time_of_halves(shape, wanted);
  return time.whole <= time.apart ? nullptr : "it has too few tiles for the processors";
}

}  // namespace tailor::hopper
