// A float32 matrix as it was given. Nothing here is CUDA or torch.
#pragma once
#include <cstdint>

namespace tailor::hopper {

struct FloatMatrix {
  const float* from = nullptr;
  std::int64_t rows = 0;
  std::int64_t stride = 0;  // in elements
  bool transposed = false;  // `from` has its rows as columns
  bool aligned = false;     // 16 bytes of a row can be read at a time

  bool is_aligned() const { return !transposed && reinterpret_cast<std::uintptr_t>(from) % 16 == 0 && stride % 4 == 0; }
};

}  // namespace tailor::hopper
