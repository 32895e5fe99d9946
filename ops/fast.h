// The fast path: torch's own linear, then the chain's tail in one kernel of kernels/, where there is one for this call.
//
// Whether there is, is decided here and nowhere else, before anything is computed: a call that is refused has changed
// nothing, and runs the reference.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <mutex>
#include <optional>

#include "../kernels/tail.h"
#include "calls.h"
#include "chain.h"
#include "reference.h"

namespace tailor {

// A call that a kernel takes: everything but the linear's result.
struct FastCall {
  const TailKernels* kernels = nullptr;
  CallCounter* counter = nullptr;
  Tail tail;
  at::Tensor input, weight;
  std::optional<at::Tensor> bias;
};

// What one op needs to choose, kept between calls.
class FastPath {
 public:
  explicit FastPath(const Chain& chain);

  // The result, or none where the reference has to run.
  std::optional<at::Tensor> run(const StepArguments* arguments, Norm norm);

 private:
  struct OnDevice {
    const TailKernels* kernels = nullptr;
    std::unique_ptr<CallCounter> counter;
  };

  const OnDevice& on(Device device);
  // Null if `call` is ready, else why no kernel takes these arguments.
  const char* prepare(const StepArguments* arguments, Norm norm, FastCall& call);

  const Chain& chain_;
  std::once_flag found_;
  std::array<OnDevice, 2> devices_;
};

}  // namespace tailor
