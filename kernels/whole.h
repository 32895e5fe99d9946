// Kernels that compute a linear and its tail together. Plain data: no torch, no CUDA.
#pragma once
#include "tail.h"

namespace tailor {

// y = x · weightᵀ + bias. Both matrices have rows whose elements lie one after another; strides are in elements.
struct Linear {
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;  // null where there is none
  std::int64_t inner = 0;      // columns of both
  std::int64_t x_stride = 0;
  std::int64_t weight_stride = 0;
  bool tensor_float32 = false;  // whether float32 may be rounded to TF32
};

struct WholeKernels {
  const char* path;  // under which calls() counts them
  // Why the kernels do not take this on the current device, or null. `out` is still to come, `y` is not used.
  const char* (*refuses)(const Linear& linear, const Tail& tail);
  const char* (*forward)(const Linear& linear, const Tail& tail, void* stream);
};

// Called while the library is loaded.
struct WholeRegistration {
  WholeRegistration(std::string_view chain, Device device, const WholeKernels& kernels);
};
const WholeKernels* find_whole(std::string_view chain, Device device);

}  // namespace tailor
