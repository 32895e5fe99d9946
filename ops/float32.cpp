#include "float32.h"

#include <ATen/Context.h>
#include <torch/library.h>

#include <atomic>

#include "environment.h"
#include "second_copy.h"

namespace tailor {
namespace {

std::atomic<bool>& splitting() {
  static std::atomic<bool> on{from_environment("TAILOR_FP16X3", true)};
  return on;
}

TORCH_LIBRARY_FRAGMENT(tailor, library) {
  if (is_second_copy()) return;
  library.def("fp16x3(bool on) -> bool", [](bool on) { return splitting().exchange(on); });
}

}  // namespace

bool tensor_float32_is_allowed() {
  static const bool overridden = !from_environment("NVIDIA_TF32_OVERRIDE", true);
  return !overridden && at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
                            at::Float32Precision::TF32;
}

bool split_float32_is_allowed() { return splitting().load(std::memory_order_relaxed); }

}  // namespace tailor
