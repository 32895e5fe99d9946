// The models that threads share, each with what it computes unfused.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace tailor::test {

// What one call gives. In training also the statistics that it leaves behind, with gradients also the input's.
struct Answer {
  at::Tensor out;
  at::Tensor mean, var;
  at::Tensor gradient;

  std::string difference(const Answer& wanted) const;  // empty if they are equal but for rounding
};

enum class Mode { eval, training, gradients };

class SharedModel {
 public:
  // `body` as tests/passes/ir.h takes it.
  explicit SharedModel(const std::string& body);

  static constexpr std::size_t inputs = 4;

  // Calls `module`, which is `fused()`, `plain()` or a copy of one. In training it writes to the module's buffers, so that
  // no other thread may use it; they begin as those of the model did.
  Answer call(torch::jit::Module& module, Mode mode, std::size_t input) const;
  const Answer& wanted(Mode mode, std::size_t input) const { return wanted_[static_cast<std::size_t>(mode)][input]; }

  const std::string& name() const { return name_; }
  const torch::jit::Module& fused() const { return fused_; }
  const torch::jit::Module& plain() const { return plain_; }  // the executor may fuse it

 private:
  std::string name_;
  torch::jit::Module plain_, fused_;
  std::vector<at::Tensor> inputs_;
  at::Tensor mean_, var_;
  std::vector<Answer> wanted_[3];
};

// All six chains, one with shape readers, and one with two chains in branches.
const std::vector<std::string>& bodies();

}  // namespace tailor::test
