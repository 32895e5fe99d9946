// How the strips of a problem of few rows are cut, and how long they take.
#pragma once
#include <algorithm>
#include <array>

#include "plan.h"

namespace tailor::hopper {

// Heights that a strip's tiles may have, rising.
template <int... each>
struct TileRows {
  static constexpr int all[sizeof...(each)] = {each...};
  static constexpr int fewest = all[0];
  static constexpr int most = all[sizeof...(each) - 1];
  static_assert(std::is_sorted(all, all + sizeof...(each)));
};

struct StripsPlan {
  int tile_rows = 0;
  int parts = 0;  // of K, a block each
  double time = 0;
};

// How many clusters of so many blocks an H200 holds at a time, a block a processor: a cluster lies in one of its groups of up to
// 18 processors. 40 of three blocks were measured to take as long as two rounds.
constexpr std::array clusters_at_once = {132, 66, 39, 30, 22, 19, 14, 12};
constexpr int most_parts = clusters_at_once.size();

// What a kernel for few rows says whose linear's result is wanted, too.
constexpr const char* strips_keep_nothing = "strips do not keep the linear's result";

// The best number of parts. `start`: microseconds before the first block; `step_time(busy)`: of a step, where blocks have that share
// of the processors; `others(parts)`: of all else that a block does.
template <class StepTime, class Others>
StripsPlan plan_strips(const Shape& shape, int tile_rows, std::int64_t steps, double start, StepTime step_time,
                       Others others) {
  StripsPlan best{.tile_rows = tile_rows};
  const std::int64_t strips = ceiling(shape.columns, 128) * ceiling(shape.rows, tile_rows);
  for (int parts = 1; parts <= most_parts && parts <= steps; ++parts) {
    const std::int64_t scaled = std::int64_t{clusters_at_once[parts - 1]} * shape.processors / clusters_at_once[0];
    const std::int64_t at_once = std::max<std::int64_t>(scaled, 1);
    const auto round = [&](std::int64_t clusters) {
      const double busy = static_cast<double>(clusters * parts) / shape.processors;
      return static_cast<double>(ceiling(steps, parts)) * step_time(busy) + others(parts);
    };
    const std::int64_t last = strips % at_once;
    const std::int64_t full_rounds = strips / at_once;
    const double time = start + static_cast<double>(full_rounds) * round(at_once) + (last > 0 ? round(last) : 0);
    if (best.parts == 0 || time < best.time) best.parts = parts, best.time = time;
  }
  return best;
}

}  // namespace tailor::hopper
