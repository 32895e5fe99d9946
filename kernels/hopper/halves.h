// A float32 matrix as two of halves. Each row is multiplied by a power of two that brings its largest number to 2^14 … 2^15; a
// number is then rounded to a half, and what is missing to another: 22 bits and a sign. Nothing here is CUDA or torch.
#pragma once
#include "float_matrix.h"

namespace tailor::hopper {

// What the kernel knows of a row of x or of the weight.
struct alignas(16) RowFacts {
  float unscale;  // the row is its halves times this
  // A result (in units of the scaled rows) whose magnitude is less than x's row's doubt plus the weight's row's is computed
  // again, from the float32 numbers. Minus infinity where all numbers are zero, infinity where halves are no use.
  float doubt;
  // Of whole numbers (times a power of two), how many digits halves are short of: `none_short` where one half holds them all,
  // `some_short` where it takes two, `all_short` where a digit is lost. Zero where they are not whole.
  float short_of_digits;
  // The shares of its numbers that are not far below the largest, and that are near it, rounded down; all where all are zero.
  std::uint16_t strong, heavy;
};
constexpr std::uint16_t whole_share = 65535;

// A number of a scaled row of at least that much may decide a result.
constexpr float least_strong = 4;
// Of at least that much it tells how large the sum of the products' magnitudes is: numbers that are heavy in both rows add its square
// at least. A result may have lost 2^-23 of that sum; an eighth of it where only this is known of it, as SGEMM's own error is less than
// that where it is least.
constexpr float least_heavy = 128;
constexpr float of_both_heavy = least_heavy * least_heavy / 8;

// A sum of few products is nearly exact in float32. So many are few: as two rows with these shares have on average.
constexpr float few_products = 64;

// Sums of whole numbers float32 may have to the last bit: where two rows are together so short of digits, and the result is
// below that.
constexpr float none_short = 0.5f;
constexpr float some_short = 1;
constexpr float all_short = 2;
constexpr float too_short = 1;
constexpr float least_inexact = 1073741824.0f;
// Where lower halves' products have sums of their own, also one half and two. The last digit of their products is 2^17 at most.
constexpr float too_short_apart = none_short * some_short;
constexpr float least_inexact_apart = 1073741824.0f * 2048;

constexpr int halves_step = 64;
// How far below a row's largest number two halves hold others: what lower halves are multiplied by, and over that; and the least magnitude
// that is held, twice, as bits of a half.
struct Reach {
  float up = 1, down = 1;
  std::uint32_t least_held = 0x34003400;  // 2^-2: the least that a lower half can add is 2^-24
};
// Down to 2^-28 of the largest instead of 2^-17: for gradients, whose rows and columns are of all magnitudes. Sums with lower halves then
// need registers of their own, which wide tiles have not got.
constexpr Reach far_reach{2048, 1.0f / 2048, 0x08000800};

// Of a step's columns the higher halves lie first, and then the lower: memory is read in pieces of 256 bytes. Here is a column's
// higher half in a row of halves, and its lower one `halves_step` behind.
constexpr int place_of_half(int column) { return column / halves_step * 2 * halves_step + column % halves_step; }

// One matrix: rows of `padded` higher halves and as many lower ones.
struct SplitMatrix : FloatMatrix {
  void* halves = nullptr;
  RowFacts* facts = nullptr;
  bool is_made = false;  // by an earlier call
};

// Rows of x whose halves are asked for together, where they are made while others are multiplied.
constexpr int rows_asked_for = 128;

// Both operands of a product.
struct Halves {
  SplitMatrix x, weight;
  int inner = 0;   // columns of both
  int padded = 0;  // the same to whole steps of the main loop; what is added is zero
  Reach reach;
  // The last so many of x's rows are made by the kernel that multiplies, the others, a multiple of rows_asked_for, by one before it.
  int rows_beside = 0;
  std::uint32_t* progress = nullptr;  // how many of those have been begun; how many of each rows_asked_for are made
  // Where x's halves lie as the transposed matrix does: of each of its lines, whose power of two the weight's line is multiplied by.
  const RowFacts* lines = nullptr;

  constexpr int rows_before() const { return static_cast<int>(x.rows) - rows_beside; }
  constexpr std::int64_t progress_count() const { return 1 + ceiling(x.rows, rows_asked_for); }
};

// Says where those of a matrix lie: from `place` on, which is null to ask only how many bytes they are.
std::int64_t place_halves(Halves& halves, SplitMatrix Halves::*matrix, void* place);

// Makes those that are not made yet and are not to be made beside the products, on `stream` (a cudaStream_t). Null, or what went wrong.
const char* make_halves(const Halves& halves, void* stream);

}  // namespace tailor::hopper
