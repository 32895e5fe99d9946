// A float32 matrix as it was given. Nothing here is CUDA or torch.
#pragma once
#include "../ceiling.h"

namespace tailor::hopper {

// Of a workspace that holds several things: each begins at a multiple of 256 bytes.
constexpr std::int64_t whole_places(std::int64_t bytes) { return ceiling(bytes, 256) * 256; }

struct FloatMatrix {
  const float* from = nullptr;
  std::int64_t rows = 0;
  std::int64_t stride = 0;  // in elements
  bool transposed = false;  // `from` has its rows as columns
  bool aligned = false;     // 16 bytes of a row can be read at a time

  bool is_aligned() const { return !transposed && reinterpret_cast<std::uintptr_t>(from) % 16 == 0 && stride % 4 == 0; }
};

}  // namespace tailor::hopper
