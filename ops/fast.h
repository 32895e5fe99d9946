// The fast path: the whole chain in one kernel of kernels/, or the linear, by torch or by a kernel too, and then the tail in one
// kernel, where there is one for this call.
//
// Whether there is, is decided here and nowhere else, before anything is computed: a call that is refused has changed
// nothing, and runs the reference.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <mutex>
#include <optional>

#include "calls.h"
#include "chain.h"
#include "reference.h"
#include "whole_path.h"

namespace tailor {

// The tensors that a tail reads besides the linear's result. Undefined where the call has none.
struct TailTensors {
  std::array<at::Tensor, max_operands> vectors;
  at::Tensor norm_weight, norm_bias, running_mean, running_var;
};

struct DevicePaths {
  explicit DevicePaths(const Chain& chain, Device device);
  const TailKernels* kernels;  // null: none for this chain and device
  WholePaths whole;
  std::optional<CallCounter> forward, backward;
};

// A call that a kernel takes: everything but the linear's result.
struct FastCall {
  const Chain* chain = nullptr;
  Norm norm = Norm::as_called;
  DevicePaths* paths = nullptr;
  bool wants_gradients = false;
  at::Tensor input, weight, bias;
  TailTensors tensors;
  std::array<at::Tensor, max_operands> numbers;  // those that are tensors
  Tail tail;                                     // without pointers
};

// Running statistics are written while the linear reads its own, where one kernel does both: not what is the same memory.
bool writes_what_the_linear_reads(const FastCall& call);

// Sets the pointers of a tail.
void point_at(Tail& tail, const TailTensors& tensors);

// What kernels want as their stream.
void* current_stream(c10::Device device);

// What one op needs to choose, kept between calls.
class FastPath {
 public:
  explicit FastPath(const Chain& chain) : chain_(chain) {}

  // The result, or none where the reference has to run.
  std::optional<at::Tensor> run(const StepArguments* arguments, Norm norm);

 private:
  DevicePaths& on(Device device);
  // Null if `call` is ready, else why no kernel takes these arguments.
  const char* prepare(const StepArguments* arguments, FastCall& call);
  // The result of a kernel that computes the linear too, or none where there is no such kernel for this call.
  std::optional<at::Tensor> run_whole(FastCall& call);
  // The linear's result, and in `workspace` what batch statistics are made of; or none where no kernel does both.
  std::optional<at::Tensor> run_gathering(FastCall& call, at::Tensor& workspace);

  const Chain& chain_;
  std::once_flag found_;
  std::array<std::unique_ptr<DevicePaths>, 2> devices_;
};

}  // namespace tailor
