// What the kernel is given.
#pragma once
#include <cuda.h>

#include "../tail.h"
#include "agreement.h"
#include "halves.h"

namespace tailor::hopper {

// Any kernel of this folder.
struct Problem {
  const void* bias = nullptr;
  int inner = 0;                   // columns of x and of the weight
  bool weight_in_passing = false;  // its lines are the first to leave the second cache
  Tail tail;
};

// One that computes tiles of 128 rows and more.
struct TileProblem : Problem {
  CUtensorMap x, w, out;   // the copy engine's descriptions of the matrices
  CUtensorMap narrow_w;    // of the weight, for tiles of half as many columns
  void* result = nullptr;  // the linear's own goes there, where it is wanted
  int row_tiles = 0, column_tiles = 0;
  int wide_tiles = 0;   // so many tiles of clusters, the first, are whole; the others are cut into two narrow ones
  Agreement agreement;  // where blocks agree on batch statistics
  Halves halves;        // where operands are two halves
};

}  // namespace tailor::hopper
