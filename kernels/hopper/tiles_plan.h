// How a problem is cut into tiles, and whether that is the faster way.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "plan.h"

namespace tailor::hopper {

// Columns of a tile. The widest are read with the fewest bytes for each product; narrower ones may fill the processors better.
constexpr int tile_widths[] = {256, 192, 128};
// In turns a warpgroup multiplies so many at a time. A processor that reads 320 rows for 192 × 128 sums is not held up by the way to it,
// and two that share x's rows do not read the second cache faster than it answers (docs/kernels.md).
constexpr int turn_rows = 192;
constexpr int turn_columns = 128;

// Two processors' tiles, one below the other, before the next column begins.
constexpr int tiles_together = 8;

// What two processors make together, of so many rows and columns. They share a tile's columns, or, in turns, its rows: an odd number
// of tiles is one more, and a processor may be idle.
inline std::int64_t pairs_of(const Shape& shape, int rows, int columns) {
  return ceiling(shape.rows, rows) * ceiling(shape.columns, columns);
}
inline std::int64_t rounds_of_pairs(const Shape& shape, std::int64_t pairs) {
  return ceiling(pairs, shape.processors < 2 ? 1 : shape.processors / 2);
}
inline std::int64_t rounds_of(const Shape& shape, int columns = 256) {
  return rounds_of_pairs(shape, pairs_of(shape, 256, columns));
}

// How many operations tensor cores do in a microsecond, beside all that a tile takes besides.
struct Rates {
  double of_widths[3];  // of tile_widths, in millions, for each processor
  double torch;
};
constexpr Rates rates_of(int element_bytes) {
  return element_bytes == 2 ? Rates{{6.45, 6.29, 5.80}, 5.86} : Rates{{3.19, 3.18, 2.97}, 2.85};
}
inline double products_of(const Shape& shape, int columns, double rate) {
  return 128.0 * 2 * columns * static_cast<double>(shape.inner) / (rate * 1e6);
}

struct TilePlan {
  int rows = 128;
  int columns = 256;
  bool in_turns = false;  // a block's warpgroups: one multiplies while the other computes its tail
  std::int64_t rounds = 0;
  bool narrow_last = false;      // those of the last round have half as many columns
  std::int64_t rows_beside = 0;  // of x, the last: their halves are made beside the products
  double time = 0;               // fitted to what an H200 took for 219 problems, anew of 16 bits for 66
};

inline double bytes_of_weight(const Shape& shape) {
  return static_cast<double>(shape.columns) * static_cast<double>(shape.inner) * shape.element_bytes;
}

// Up to 128 rows, one tile of each two is empty. An H200 then reads a weight of 16 bits no faster than this; for 256 rows it does.
inline double least_time_of_tiles(const Shape& shape) {
  return shape.rows <= 128 && shape.element_bytes == 2 ? 7 + bytes_of_weight(shape) / 1.8e6 : 0;
}

// Tiles read their rows of x and of the weight, again and again from the second cache, and what that cannot hold from memory. An H100,
// whose memory is slower, brings no more than this: 11912×5888→6656 in bfloat16 took 1223 µs in tiles of 256 columns, which read least,
// and 1600 in those of 128. An H200 was not held up by it. `read`: how many rows of either all tiles read together.
inline double time_to_read_tiles(const Shape& shape, double read) {
  constexpr double rate = 6.9e6, held = 80e6;
  const auto inner_bytes = static_cast<double>(shape.inner * shape.element_bytes);
  if (shape.memory_rate <= 0 || has_fast_memory(shape)) return 0;
  if (static_cast<double>(shape.rows + shape.columns) * inner_bytes < held) return 0;
  return read * inner_bytes / rate;
}

// A tail takes some of the time of the products beside it; those of a short K do not hide it.
struct RoundOfTiles {
  double time;
  double last_tail;  // is beside none
};
inline RoundOfTiles round_of_tiles(const Shape& shape, int which) {
  const int columns = tile_widths[which];
  const bool groups = shape.group_width != 0;
  const double wide = columns / 256.0;
  const double products = products_of(shape, columns, rates_of(shape.element_bytes).of_widths[which]);
  if (shape.element_bytes == 2) {
    const double tail = (groups ? 3.2 : 1.3) * wide;
    const double shortest = groups ? 6.6 * wide + 0.81 * products : 1 + 2.5 * wide + 0.39 * products;
    return {std::max(products + tail, shortest), groups ? 2 * wide : 0};
  }
  const bool is_hidden = columns <= 128;
  const double tail = groups ? 4.5 * wide * (is_hidden ? 1 : 2) : 4.4 * wide;
  const double shortest = groups ? 7.8 * wide + 0.75 * products : 0.75 + 4.4 * wide + 0.5 * products;
  return {std::max(products + tail, shortest), groups && is_hidden ? 2.2 * wide : 0};
}
// A processor makes one tile after another, and if the last round has few tiles, most of them wait. `narrow_last`: that is a round of the
// narrowest tiles. The ring has no more steps for those, though each takes half the time: so they wait for memory, and where there is no
// other round, tiles of 128 columns from the start take less.
inline TilePlan tiles_of(const Shape& shape, int which, bool narrow_last = false) {
  TilePlan plan{.columns = tile_widths[which], .narrow_last = narrow_last};
  plan.rounds = rounds_of(shape, plan.columns);
  const RoundOfTiles round = round_of_tiles(shape, which);
  const RoundOfTiles last = narrow_last ? round_of_tiles(shape, 2) : round;
  const double waiting = narrow_last ? 2.6 : 0;
  const double rounds = static_cast<double>(plan.rounds - 1) * round.time + last.time + waiting;
  const auto pairs = static_cast<double>(pairs_of(shape, 256, plan.columns));
  plan.time = 5.5 + std::max(rounds + last.last_tail, time_to_read_tiles(shape, pairs * (256 + plan.columns)));
  plan.time = std::max(plan.time, least_time_of_tiles(shape));
  return plan;
}

// Whether the widest tiles leave so few for the last round that, each cut in two, there are processors for all.
inline bool may_be_narrow_last(const Shape& shape) {
  const std::int64_t at_once = std::max(shape.processors / 2, 1);
  const std::int64_t last = pairs_of(shape, 256, tile_widths[0]) % at_once;
  return last > 0 && 2 * last <= at_once;
}

// In turns tiles are large, and each warpgroup reads all of the weight's rows for itself: that pays where a group norm's tail is long
// beside the products, and where there are many tiles. Fitted to what an H100 took for 25 problems, and anew of 16 bits to what an H200 took.
inline TilePlan tiles_in_turns(const Shape& shape) {
  TilePlan plan{.rows = 2 * turn_rows, .columns = turn_columns, .in_turns = true};
  const std::int64_t pairs = pairs_of(shape, plan.rows, 2 * plan.columns);
  plan.rounds = rounds_of_pairs(shape, pairs);
  const bool is_float = shape.element_bytes == 4;
  const double rate = (is_float ? 1 : 0.96) * rates_of(shape.element_bytes).of_widths[0];
  const double products = products_of(shape, plan.rows, rate);  // 128 columns
  // A warpgroup's tail has the products of the other beside it, which are half of all, and waits for its own.
  const double round =
      std::max(products + 0.7 + 1.4 * shape.element_bytes, 1 + 4 * shape.element_bytes + 0.45 * products);
  constexpr double unevenly = 1.1;  // read: 16384×4096→4096 in TF32 took 1464 µs, and 1437 in tiles of 256 columns
  plan.time =
      std::max((is_float ? 9.5 : 7.5) + static_cast<double>(plan.rounds) * round,
               time_to_read_tiles(shape, unevenly * static_cast<double>(pairs) * (plan.rows + 4 * plan.columns)));
  plan.time = std::max(plan.time, least_time_of_tiles(shape));
  return plan;
}

// Candidates in the order in which they are looked at: of equal ones the first is taken.
template <class Look>
void for_each_tiling(const Shape& shape, Look look) {
  for (int which = 0; which < 3; ++which) look(tiles_of(shape, which));
  if (shape.element_bytes == 2 && may_be_narrow_last(shape)) look(tiles_of(shape, 0, true));  // TF32 has no such kernel
  if (shape.group_width != 0) look(tiles_in_turns(shape));
}
inline TilePlan plan_tiles(const Shape& shape, Wanted wanted) {
  if (wanted == Wanted::always_192) return tiles_of(shape, 1);
  if (wanted == Wanted::always_128) return tiles_of(shape, 2);
  if (wanted == Wanted::always_narrow) return tiles_of(shape, 0, shape.element_bytes == 2 && may_be_narrow_last(shape));
  if (also_where_slower(wanted))  // tests are to see both
    return shape.group_width != 0 && shape.inner <= 2048 ? tiles_in_turns(shape) : tiles_of(shape, 0);
  TilePlan best;
  for_each_tiling(shape, [&](const TilePlan& plan) {
    if (best.rounds == 0 || plan.time < best.time) best = plan;
  });
  return best;
}

// In 16 bits, by cuBLAS: what few rows wait for. A small weight does not keep memory busy. Fitted to what an H200 took
// (docs/performance.md).
inline double time_to_read_weight(const Shape& shape) {
  return std::min(0.8 + bytes_of_weight(shape) / 2.15e6, 3.7 + bytes_of_weight(shape) / 3.98e6);
}

// torch's linear. cuBLAS has tiles of many sizes for 16 bits, and few for TF32. With a short K it writes for longer than it multiplies.
inline double time_of_linear(const Shape& shape) {
  const Rates rates = rates_of(shape.element_bytes);
  const auto rows = static_cast<double>(shape.rows);
  const auto columns = static_cast<double>(shape.columns);
  const double products = 2 * rows * columns * static_cast<double>(shape.inner);
  double time =
      std::max(products / (shape.processors * rates.torch * 1e6), rows * columns * shape.element_bytes / 2.7e6);
  if (shape.element_bytes == 4) {
    double cut = std::numeric_limits<double>::infinity();
    for (const int which : {0, 2}) {
      const std::int64_t tiles = ceiling(shape.rows, 128) * ceiling(shape.columns, tile_widths[which]);
      cut = std::min(cut, static_cast<double>(ceiling(tiles, shape.processors)) *
                              products_of(shape, tile_widths[which], rates.of_widths[which]));
    }
    // Where few processors would have a tile cuBLAS cuts K.
    if (ceiling(shape.rows, 128) * ceiling(shape.columns, 128) * 8 <= shape.processors)
      cut = std::min(cut, cut / 4 + 2);
    time = std::max(time, 0.92 * cut);
  } else {
    // Whichever takes longer hides the other, but not where both take about as long.
    time = std::cbrt(std::pow(time, 3) + std::pow(time_to_read_weight(shape), 3));
  }
  return 6.5 + time;
}

// Null if it gets the kernel, else why not.
inline const char* refuses_tiles(const Shape& shape, Wanted wanted, const Estimate& time) {
  if (const char* why = refuses_any(shape, wanted)) return why;
  if (also_where_slower(wanted)) return nullptr;
  // There cuBLAS has other kernels, which do not round float32 to TF32 though they may.
  if (shape.element_bytes == 4 && shape.inner < 128) return "its float32 products are so short that TF32 gains nothing";
  return time.whole <= time.apart ? nullptr : "it has too few tiles for the processors";
}

}  // namespace tailor::hopper
