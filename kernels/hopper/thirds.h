// A float32 matrix as three of bfloat16, whose numbers add up to the float32 numbers: 24 bits are three times eight. Nothing
// here is CUDA or torch.
#pragma once
#include "float_matrix.h"

namespace tailor::hopper {

// What the kernel knows of a row of x.
struct alignas(16) RowOfX {
  float unscale;  // the row is its thirds times this
  // A result (of the scaled row) below this times the weight's row's largest number, or 1 if that is more, is computed again.
  float lost;
  bool is_zero;  // all numbers are
  bool has_nan;  // and so have all results
};

// Numbers of K that a step of the kernel's main loop takes.
constexpr int thirds_step = 32;

// x, cut into tiles of so many rows and those into steps. A tile's step is one block of bytes, as it is to lie in shared memory:
// for each eight numbers of K the first thirds, 16 bytes a row, then the second and the third ones.
struct Thirds {
  FloatMatrix x;
  int inner = 0;
  int tile_rows = 0;
  void* blocks = nullptr;
  RowOfX* facts = nullptr;  // of rows

  constexpr int steps() const { return static_cast<int>(ceiling(inner, thirds_step)); }
  constexpr int tiles() const { return static_cast<int>(ceiling(x.rows, tile_rows)); }
  constexpr std::int64_t block_bytes() const { return std::int64_t{3} * 2 * thirds_step * tile_rows; }
};

// Says where they lie: from `place` on, which is null to ask only how many bytes they are.
std::int64_t place_thirds(Thirds& thirds, void* place);

// Makes them on `stream` (a cudaStream_t). The kernel after this one may begin at once, and waits by itself. Null, or what went wrong.
const char* make_thirds(const Thirds& thirds, void* stream);

}  // namespace tailor::hopper
