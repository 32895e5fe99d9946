// Whether float32 is multiplied by halves: in tiles or, of few rows where the weight is settled or small, in strips.
#pragma once
#include "halves.h"
#include "shared_halves.h"
#include "strips_plan.h"
#include "tiles_plan.h"

namespace tailor::hopper {

// Microseconds of making halves, but for some rows of x.
inline double split_of(const Shape& shape, std::int64_t rows_beside = 0) {
  const std::int64_t rows = shape.rows - rows_beside + (shape.weight_is_settled ? 0 : shape.columns);
  return 8.0 * static_cast<double>(rows * shape.inner) / 3.6e6;
}

// How many of x's rows, the last, the warps make that are idle while others multiply for so many microseconds. The first round of tiles
// waits for none of them. They are slow, a sixteenth of what memory brings: if the products had to wait for them it would take
// longer than a kernel before (an H100 took 5690 µs for 5570 where they made half of 537 MB beside 1200 µs of products). The weight's
// rows are all wanted within a round or two: they were not made in time.
inline std::int64_t rows_beside(const Shape& shape, int columns, double products) {
  const double rate = 0.15e6 / 132 * shape.processors;  // bytes of x; a third more were seen, of 132
  const std::int64_t at_once = std::max(shape.processors / 2, 1);
  const std::int64_t bands = ceiling(at_once, tiles_together * ceiling(shape.columns, columns));
  const auto in_time =
      static_cast<std::int64_t>(rate * products / (4.0 * static_cast<double>(std::max(shape.inner, std::int64_t{1}))));
  const std::int64_t beside = std::min(shape.rows - bands * tiles_together * 256, in_time);
  return std::max(shape.rows - ceiling(shape.rows - beside, rows_asked_for) * rows_asked_for, std::int64_t{0});
}

// Of three products of halves in tiles of 256 or 128 columns; fitted to what an H200 took for 62 problems. Where processors are idle, the
// others are faster.
inline double round_of_halves(const Shape& shape, int columns) {
  const std::int64_t tiles = ceiling(shape.rows, 256) * ceiling(shape.columns, columns) * 2;
  const double idle = std::max(1 - static_cast<double>(tiles) / shape.processors, 0.0);
  const double step = (columns == 256 ? 1.945 : 1.01) * (1 - 0.14 * idle);  // 64 of the inner dimension
  const double tail = 9 * columns / 256.0;
  return static_cast<double>(ceiling(shape.inner, 64)) * step + tail;
}
// And to make them. `narrow_last` as in tiles_of.
inline TilePlan tiles_of_halves(const Shape& shape, int columns, bool narrow_last = false) {
  TilePlan plan{.columns = columns, .rounds = rounds_of(shape, columns), .narrow_last = narrow_last};
  const double round = round_of_halves(shape, columns);
  const double last = narrow_last ? round_of_halves(shape, columns / 2) + 4 : round;
  const double products = static_cast<double>(plan.rounds - 1) * round + last;
  plan.rows_beside = rows_beside(shape, columns, products);
  plan.time = products + split_of(shape, plan.rows_beside) + 8;
  return plan;
}
inline TilePlan plan_tiles_of_halves(const Shape& shape, Wanted wanted) {
  const bool is_welcome = wanted == Wanted::always_narrow || !also_where_slower(wanted);
  const bool narrow_last = is_welcome && may_be_narrow_last(shape);
  const TilePlan wide = tiles_of_halves(shape, 256, narrow_last);
  const TilePlan narrow = tiles_of_halves(shape, 128);
  if (also_where_slower(wanted)) {  // tests are to see rows that are made beside the products
    TilePlan plan = wanted == Wanted::always_128 || shape.of_gradients ? narrow : wide;
    plan.rows_beside = std::max(shape.rows - rows_asked_for, std::int64_t{0});
    return plan;
  }
  return shape.of_gradients || narrow.time < wide.time ? narrow : wide;
}

// Microseconds, fitted to what an H200 took for 39 problems of up to 1824 rows, whose weights were settled or not; `start` is 1.4 less since
// blocks meet sooner, as strips of thirds were measured to. A step is 64 numbers
// of K. A block by itself waits for its matrix instructions, or for what a processor can read; all blocks together wait for memory.
inline double step_of_few_halves(int tile_rows, double busy) {
  const double alone = std::max(0.31 + 0.0047 * tile_rows, 0.0078 * tile_rows);
  const double together = 1.1 + 0.0015 * tile_rows;
  return std::max(together * busy, alone);
}

using RowsOfHalves = TileRows<32, 64, 128, 256>;

inline StripsPlan plan_few_halves(const Shape& shape) {
  StripsPlan best;
  const double start = 4.6 + split_of(shape) + (shape.weight_is_settled ? 0 : 0.5);
  for (const int tile_rows : RowsOfHalves::all) {
    const StripsPlan plan = plan_strips(
        shape, tile_rows, ceiling(shape.inner, 64), start,
        [&](double busy) { return step_of_few_halves(tile_rows, busy); },
        [&](int parts) { return 2.2 + (0.036 + 0.015 / parts) * tile_rows + 0.83 * parts; });
    if (best.parts == 0 || plan.time < best.time) best = plan;
    if (shape.rows <= tile_rows) break;
  }
  return best;
}

// Whether strips are for a problem that halves take.
inline bool takes_strips_of_halves(const Shape& shape, Wanted wanted) {
  if (shape.keeps_result) return false;
  if (wanted == Wanted::strips) return true;
  constexpr int most_rows = 2048;  // where times were compared
  if (also_where_slower(wanted) || shape.rows > most_rows) return false;
  return plan_few_halves(shape).time < plan_tiles_of_halves(shape, wanted).time;
}

// Why two products of a matrix, of which the second reads it transposed, had better make halves of it each for itself, or null. The
// shapes are theirs.
inline const char* refuses_to_share(const Shape& shape, const Shape& transposed, Wanted wanted) {
  if (shape.inner > shared_columns) return "its rows are longer than a block's threads hold";
  if (shape.rows > shared_rows) return "it has more rows than are counted";
  constexpr int least_rows_of_block = 16;
  if (wanted == Wanted::where_faster && shape.rows < least_rows_of_block * shared_blocks(shape.inner, shape.processors))
    return "its blocks have so few rows each that they wait";
  if (takes_strips_of_halves(shape, wanted) || takes_strips_of_halves(transposed, wanted))
    return "strips do not read what is shared";
  return nullptr;
}

// The faster way by halves, and what else there is.
inline Estimate time_of_halves(const Shape& shape, Wanted wanted) {
  const bool by_strips = takes_strips_of_halves(shape, wanted);
  return {by_strips ? plan_few_halves(shape).time : plan_tiles_of_halves(shape, wanted).time, float32_apart(shape)};
}

inline const char* refuses_halves(const Shape& shape, Wanted wanted) {
  if (const char* why = refuses_tail(shape)) return why;
  if (const char* why = refuses_any(shape, wanted)) return why;
  if (wanted == Wanted::strips && shape.keeps_result) return strips_keep_nothing;
  if (also_where_slower(wanted) || wanted == Wanted::strips) return nullptr;
  constexpr int fewest_kept = 512;  // of fewer rows a linear by itself may be faster in other ways than in tiles
  if (shape.keeps_result && shape.rows < fewest_kept) return "its rows are few, and its linear's result is to be kept";
  if (shape.inner < 256) return "its products are so short that halves gain nothing";
  const Estimate time = time_of_halves(shape, wanted);
  return time.whole <= time.apart ? nullptr : "it has too few tiles for the processors";
}

}  // namespace tailor::hopper
