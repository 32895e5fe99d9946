// Whether a problem gets the kernel: decided here and nowhere else.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include "../ceiling.h"

namespace tailor::hopper {

struct Matrix {
  const void* data;
  std::int64_t rows, columns, stride;  // in elements
  int element_bytes;
};

// Why the copy engine cannot read or write a matrix, or null. Rows that overlap, as those of an expanded tensor do, and a
// matrix without columns it cannot describe.
inline const char* refuses_matrix(const Matrix& matrix) {
  if (matrix.columns == 0) return "a matrix has no columns";
  if (matrix.stride < matrix.columns) return "the rows of a matrix overlap";
  if (reinterpret_cast<std::uintptr_t>(matrix.data) % 16 != 0) return "a matrix is not aligned to 16 bytes";
  const std::int64_t bytes = matrix.stride * matrix.element_bytes;
  if (bytes % 16 != 0) return "the rows of a matrix are not aligned to 16 bytes";
  if (bytes >= std::int64_t{1} << 40) return "the rows of a matrix are too far apart";
  return nullptr;
}

struct Shape {
  std::int64_t rows = 0, columns = 0, inner = 0;
  int element_bytes = 2;
  std::int64_t group_width = 0;  // 0 without a group norm
  int processors = 0;
  bool weight_is_settled = false;  // its halves need not be made
  bool batch_statistics = false;   // of a batch norm
  int clusters = 0;  // that are there at the same time, of the kernel whose blocks agree on such statistics
};

// TAILOR_HOPPER: `always`, `few_rows` and `strips`, also where it is the slower way, the kernel for tiles of many rows, that for few
// rows, or that for few rows of halves; `gather`, as `always`, but its blocks never agree on batch statistics; `never`.
enum class Wanted : std::uint8_t { where_faster, always, gather, few_rows, strips, never };
constexpr bool also_where_slower(Wanted wanted) { return wanted == Wanted::always || wanted == Wanted::gather; }
constexpr std::optional<Wanted> wanted_by(std::string_view word) {
  if (word.empty()) return Wanted::where_faster;
  if (word == "always") return Wanted::always;
  if (word == "gather") return Wanted::gather;
  if (word == "few_rows") return Wanted::few_rows;
  if (word == "strips") return Wanted::strips;
  if (word == "never") return Wanted::never;
  return std::nullopt;
}
inline Wanted wanted() {
  static const Wanted read = [] {
    const char* value = std::getenv("TAILOR_HOPPER");
    const std::optional<Wanted> known = wanted_by(value != nullptr ? value : "");
    if (!known)
      std::fprintf(stderr, "Tailor does not know TAILOR_HOPPER=%s. It knows always, gather, few_rows, strips, never.\n",
                   value);
    return known.value_or(Wanted::where_faster);
  }();
  return read;
}

// The widths of groups that there are kernels for. Wider ones do not fit into registers beside the accumulators.
constexpr bool takes_groups_of(std::int64_t width) { return width == 16 || width == 32 || width == 64; }

// What a block's warpgroups do.
enum class Manner : std::uint8_t {
  side_by_side,  // each has half the rows of a tile, and computes their tail
  in_turns,      // one multiplies while the other computes its tail
  agreeing,   // side by side, and the blocks that share columns agree on batch statistics before they compute the tail
  gathering,  // side by side, but there is no tail yet: they gather what batch statistics are made of
};

// Microseconds, on an H200 and roughly: only which is less matters. A processor makes one tile of 128 × 256 after another,
// and if the last round has few tiles, most of them wait. cuBLAS has smaller tiles for such problems; but then the tail is a
// kernel of its own, which reads and writes the result once more.
struct Estimate {
  double whole = 0;
  double apart = 0;
};
// Two processors share a tile's columns: an odd number of tiles in a column is one tile more, and a processor may be idle.
inline double rounds_of(const Shape& shape) {
  const std::int64_t pairs = ceiling(shape.rows, 256) * ceiling(shape.columns, 256);
  return static_cast<double>(ceiling(pairs, shape.processors < 2 ? 1 : shape.processors / 2));
}

// Whether the two warpgroups of a block take turns, one multiplying while the other computes its tail. Each then reads all of the
// weight's rows for itself: that pays where a group norm's tail is long beside the products, and where tiles follow one another.
inline bool takes_turns(const Shape& shape, Wanted wanted) {
  if (shape.group_width == 0) return false;
  if (also_where_slower(wanted)) return shape.inner <= 2048;
  const double rounds = rounds_of(shape);
  return rounds >= 2 && shape.inner <= (rounds < 6 ? 2048 : 4096);
}

// What a tail apart reads and writes once more, and its launch. With batch statistics it is apart in any case: then this is what it
// takes to gather them from the linear's result.
inline double tail_apart(const Shape& shape) {
  const double bytes = static_cast<double>(shape.rows * shape.columns * shape.element_bytes);
  return shape.batch_statistics ? bytes / 2.7e6 + 4 : 2 * bytes / 4.3e6 + 2;
}

inline double round_of(const Shape& shape) {
  const double products = 128.0 * 256.0 * 2 * static_cast<double>(shape.inner);
  return products / (shape.element_bytes == 2 ? 6.5e6 : 3.2e6);
}
inline Estimate estimate(const Shape& shape) {
  const double round = round_of(shape);
  const std::int64_t tiles = ceiling(shape.rows, 128) * ceiling(shape.columns, 256);
  Estimate estimate;
  estimate.whole =
      rounds_of(shape) * round + (shape.batch_statistics ? 4 : 0);  // those of the last round are not hidden
  estimate.apart = static_cast<double>(tiles) / shape.processors * round + tail_apart(shape);
  return estimate;
}

// What no kernel of this folder takes, or null.
inline const char* refuses_any(const Shape& shape, Wanted wanted) {
  if (wanted == Wanted::never) return "TAILOR_HOPPER=never";
  if (shape.group_width != 0 && !takes_groups_of(shape.group_width))
    return "its groups are not 16, 32 or 64 columns wide";
  if (shape.inner == 0) return "its sums are empty";
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (shape.rows >= most || shape.columns >= most || shape.inner >= most) return "it has 2^30 rows or columns or more";
  return nullptr;
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
// To agree and to compute a tail takes a while, which products hide that are long enough; behind the last ones nothing is hidden.
// Apart, the statistics are gathered, by whichever way is the faster, and merged, and the tail comes after.
inline Estimate estimate_of_agreement(const Shape& shape) {
  const double round = round_of(shape);
  const double shortest_round = 18;
  const double last_agreement = 13;  // and for all blocks to begin together
  Shape tail = shape;
  tail.batch_statistics = false;
  const Estimate gathered = estimate(shape);
  const double merging = shape.rows > 2048 ? 6 : 3;  // a kernel by itself, or what the tail's does of it
  const std::int64_t rounds = plan_agreement(shape).rounds;
  Estimate estimate;
  estimate.whole = static_cast<double>(rounds - 1) * std::max(round, shortest_round) + round + last_agreement;
  estimate.apart = std::min(gathered.whole, gathered.apart) + merging + tail_apart(tail);
  if (rounds == 0) estimate.whole = std::numeric_limits<double>::infinity();
  return estimate;
}

// Where a kernel cannot compute the tail with the linear, or null. A column's statistics are known when the last of its tiles is.
inline const char* refuses_tail(const Shape& shape) {
  return shape.batch_statistics ? "a tail with batch statistics comes after the whole linear" : nullptr;
}

// Null if it gets the kernel, else why not. With batch statistics that is the one that makes the linear and gathers them.
inline const char* refuses(const Shape& shape, Wanted wanted) {
  if (const char* why = refuses_any(shape, wanted)) return why;
  if (also_where_slower(wanted)) return nullptr;
  // There cuBLAS has other kernels, which do not round float32 to TF32 though they may.
  if (shape.element_bytes == 4 && shape.inner < 128) return "its float32 products are so short that TF32 gains nothing";
  const Estimate time = estimate(shape);
  return time.whole <= time.apart ? nullptr : "it has too few tiles for the processors";
}

// Null if the kernel whose blocks agree on batch statistics takes it, else why not.
inline const char* refuses_to_agree(const Shape& shape, Wanted wanted) {
  if (const char* why = refuses_any(shape, wanted)) return why;
  if (wanted == Wanted::gather) return "TAILOR_HOPPER=gather";
  if (shape.element_bytes != 2) return refuses_tail(shape);  // no room for results to wait beside products
  if (plan_agreement(shape).column_tiles == 0) return "not all tiles of a column fit onto the processors at a time";
  if (wanted == Wanted::always) return nullptr;
  const Estimate time = estimate_of_agreement(shape);
  return time.whole <= time.apart ? nullptr : "to gather its statistics, and then to compute the tail, is faster";
}

}  // namespace tailor::hopper
