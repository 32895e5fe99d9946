// What is known of a problem, what is wanted, and what no kernel of this folder takes. Which of them gets it is said in the other
// plans, and nowhere else.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
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
  double memory_rate = 0;          // what the GPU's memory brings at most, in bytes a microsecond; 0: nobody knows
  bool weight_is_settled = false;  // its halves need not be made
  bool of_gradients = false;       // their numbers are of all magnitudes
  bool batch_statistics = false;   // of a batch norm
  int clusters = 0;           // that are there at the same time, of the kernel whose blocks agree on such statistics
  bool keeps_result = false;  // the linear's, besides the chain's
};

// An H200's is, an H100's is not.
inline bool has_fast_memory(const Shape& shape) { return shape.memory_rate > 4e6; }

// Whether the second cache is to give up the weight's lines first. Where rows are few they are read once, or by all tiles of rows at a
// time, and then push out nothing that others have left there, some of it still to be written to memory. Of weights of 268 MB that was
// slower on an H100, and on an H200 where another tile of rows comes to read them later.
inline bool reads_weight_in_passing(const Shape& shape, bool at_a_time) {
  constexpr std::int64_t most_rows = 1024, most_bytes = std::int64_t{160} << 20;
  if (shape.rows > most_rows) return false;
  return shape.columns * shape.inner * shape.element_bytes <= most_bytes || (at_a_time && has_fast_memory(shape));
}

// TAILOR_HOPPER: `always`, `few_rows` and `strips`, also where it is the slower way, the kernel for tiles of many rows, that for few
// rows, or that for few rows of halves or of 16-bit elements; `always_192` and `always_128`, as `always`, but tiles of so many columns
// where there are some; `always_narrow`, as `always`, but the last round's are half as wide where there are processors for all;
// `gather`, as `always`, but its blocks never agree on batch statistics; `never`.
enum class Wanted : std::uint8_t {
  where_faster,
  always,
  always_192,
  always_128,
  always_narrow,
  gather,
  few_rows,
  strips,
  never
};
constexpr bool also_where_slower(Wanted wanted) {
  return wanted == Wanted::always || wanted == Wanted::always_192 || wanted == Wanted::always_128 ||
         wanted == Wanted::always_narrow || wanted == Wanted::gather;
}
constexpr std::optional<Wanted> wanted_by(std::string_view word) {
  if (word.empty()) return Wanted::where_faster;
  if (word == "always") return Wanted::always;
  if (word == "always_192") return Wanted::always_192;
  if (word == "always_128") return Wanted::always_128;
  if (word == "always_narrow") return Wanted::always_narrow;
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
      std::fprintf(
          stderr,
          "Tailor does not know TAILOR_HOPPER=%s. It knows always, always_192, always_128, always_narrow, gather, "
          "few_rows, strips, never.\n",
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

// Microseconds, on an H200 and roughly: only which is less matters.
struct Estimate {
  double whole = 0;
  double apart = 0;
};

// What a tail apart reads and writes once more, and its launch. With batch statistics it is apart in any case: then this is what it
// takes to gather them from the linear's result.
inline double tail_apart(const Shape& shape) {
  const double bytes = static_cast<double>(shape.rows * shape.columns * shape.element_bytes);
  if (shape.batch_statistics) return bytes / 2.7e6 + 4;
  return shape.group_width != 0 ? bytes / 1.56e6 + 4 : bytes / 1.96e6 + 2;
}

// What a kernel that also keeps the linear's result takes longer: products do not hide all of what it writes.
inline double time_to_keep(const Shape& shape) {
  const double bytes = static_cast<double>(shape.rows * shape.columns * shape.element_bytes);
  return shape.keeps_result ? bytes / 3.5e6 : 0;
}

// Microseconds of float32 by cuBLAS, and of the tail after it. It multiplies on the CUDA cores, and has other kernels for few
// rows, and one for a single row that reads the weight as fast as memory gives it.
inline double float32_apart(const Shape& shape) {
  const double weight = static_cast<double>(shape.columns) * static_cast<double>(shape.inner);
  const auto rows = static_cast<double>(shape.rows);
  const auto inner = static_cast<double>(shape.inner);
  if (shape.rows == 1) return 5 + weight * 1.05e-6 + tail_apart(shape);
  if (shape.rows < 16) return 5 + std::max(weight * 1.6e-6, inner * 0.0058) + tail_apart(shape);
  const double of_inner = std::min(0.0055 + 0.00011 * rows, 0.02);
  const double of_few_rows = 5 + weight * (1.5e-6 + 0.03e-6 * rows) + inner * of_inner;
  return std::max(of_few_rows, weight * 0.04e-6 * rows) + tail_apart(shape);
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

// Where a kernel cannot compute the tail with the linear, or null. A column's statistics are known when the last of its tiles is.
inline const char* refuses_tail(const Shape& shape) {
  return shape.batch_statistics ? "a tail with batch statistics comes after the whole linear" : nullptr;
}

}  // namespace tailor::hopper
