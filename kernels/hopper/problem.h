// What the kernel is given.
#pragma once
#include <cuda.h>

#include "../tail.h"
#include "halves.h"

namespace tailor::hopper {

struct Problem {
  CUtensorMap x, w, out;  // the copy engine's descriptions of the matrices
  const void* bias;
  int inner;  // columns of x and of w
  int row_tiles, column_tiles;
  Tail tail;
  Halves halves;  // where operands are two halves
};

}  // namespace tailor::hopper
