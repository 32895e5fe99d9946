// Which kernels a batch norm's statistics get where they are those of the batch: blocks that agree on them, or that gather them, or
// torch's linear and a kernel that gathers.
#pragma once
#include "tiles_plan.h"

namespace tailor::hopper {

// Of a tile of 128 × 256.
inline double round_of(const Shape& shape) { return products_of(shape, 256, shape.element_bytes == 2 ? 6.5 : 3.2); }

// To gather them beside the products, or from the result of torch's linear.
inline Estimate estimate_of_gathering(const Shape& shape) {
  const double round = round_of(shape);
  const double last_round = 4;  // is not hidden
  const std::int64_t tiles = ceiling(shape.rows, 128) * ceiling(shape.columns, 256);
  return {static_cast<double>(rounds_of(shape)) * round + last_round,
          static_cast<double>(tiles) / shape.processors * round + tail_apart(shape)};
}
inline const char* refuses_to_gather(const Shape& shape, Wanted wanted) {
  return refuses_tiles(shape, wanted, estimate_of_gathering(shape));
}

// How the blocks agree on batch statistics: all tiles of a column have to be there at the same time, and as many columns are as fit.
struct AgreementPlan {
  std::int64_t row_tiles = 0;     // of two blocks
  std::int64_t column_tiles = 0;  // at the same time; 0 where there is no room for one
  std::int64_t rounds = 0;
  int share_bits = 0;  // of half a tile's columns, 2^share_bits are merged by each block
};
inline AgreementPlan plan_agreement(const Shape& shape) {
  AgreementPlan plan;
  const std::int64_t column_tiles = ceiling(shape.columns, 256);
  plan.row_tiles = std::max(ceiling(shape.rows, 256), std::int64_t{1});
  plan.column_tiles = std::min(shape.clusters / plan.row_tiles, column_tiles);
  plan.rounds = plan.column_tiles == 0 ? 0 : ceiling(column_tiles, plan.column_tiles);
  while ((2 * plan.row_tiles << plan.share_bits) < 128) ++plan.share_bits;
  return plan;
}
// The blocks that share a column of tiles have all of x between them, and read it for every column anew.
inline double time_to_read_x(const Shape& shape) {
  if (shape.memory_rate <= 0) return 0;
  const double bytes = static_cast<double>(shape.rows) * static_cast<double>(shape.inner) * shape.element_bytes;
  return bytes / (0.8 * shape.memory_rate);
}
// To agree and to compute a tail takes a while, which products hide that are long enough; behind the last ones nothing is hidden.
// Apart, the statistics are gathered, by whichever way is the faster, and merged, and the tail comes after. Fitted to what an H200 took for
// 13 problems of two chains, K from 1024 on.
inline Estimate estimate_of_agreement(const Shape& shape) {
  const double round = round_of(shape);
  const double with_tail = std::max(round + 5, 17 + 0.57 * round);
  const double last_agreement = 20.5;  // and for all blocks to begin together
  Shape tail = shape;
  tail.batch_statistics = false;
  const Estimate gathered = estimate_of_gathering(shape);
  const double merging = shape.rows > 2048 ? 6 : 3;  // a kernel by itself, or what the tail's does of it
  const std::int64_t rounds = plan_agreement(shape).rounds;
  const double longest = std::max(with_tail, time_to_read_x(shape));
  Estimate estimate;
  estimate.whole = static_cast<double>(rounds - 1) * longest + round + last_agreement;
  const double not_hidden = 7 + 1.7 * static_cast<double>(rounds_of(shape));  // of either way to gather; launches
  estimate.apart = std::min(gathered.whole, gathered.apart) + not_hidden + merging + tail_apart(tail);
  if (rounds == 0) estimate.whole = std::numeric_limits<double>::infinity();
  return estimate;
}

// Null if the kernel whose blocks agree on batch statistics takes it, else why not.
inline const char* refuses_to_agree(const Shape& shape, Wanted wanted) {
  if (const char* why = refuses_any(shape, wanted)) return why;
  if (wanted == Wanted::gather) return "TAILOR_HOPPER=gather";
  if (shape.element_bytes != 2) return refuses_tail(shape);  // no room for results to wait beside products
  if (plan_agreement(shape).column_tiles == 0) return "not all tiles of a column fit onto the processors at a time";
  if (also_where_slower(wanted)) return nullptr;
  const Estimate time = estimate_of_agreement(shape);
  return time.whole <= time.apart ? nullptr : "to gather its statistics, and then to compute the tail, is faster";
}

}  // namespace tailor::hopper
