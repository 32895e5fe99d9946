#include "float32.h"

#include <ATen/Context.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

namespace tailor {
namespace {

bool is_zero(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "0";
}

std::atomic<bool>& splitting() {
  static std::atomic<bool> on{!is_zero("TAILOR_FP16X3")};
  return on;
}

TORCH_LIBRARY_FRAGMENT(tailor, library) {
  library.def("fp16x3(bool on) -> bool", [](bool on) { return splitting().exchange(on); });
}

}  // namespace

bool tensor_float32_is_allowed() {
  static const bool overridden = is_zero("NVIDIA_TF32_OVERRIDE");
  return !overridden && at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
                            at::Float32Precision::TF32;
}

bool split_float32_is_allowed() { return splitting().load(std::memory_order_relaxed); }

}  // namespace tailor
