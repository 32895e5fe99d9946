// Autograd of a fast path. The linear is torch's own, with torch's own backward; a node of ours stands behind it for the
// tail: it keeps the linear's result and computes everything else anew (kernels/gradient.h).
#pragma once
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "fast.h"

namespace tailor {

class TailBackward final : public torch::autograd::Node {
 public:
  // For a call whose linear gave `y`. Where eager would not mind if somebody wrote to an operand before the backward, this
  // puts a copy of it into the call.
  static std::shared_ptr<TailBackward> prepare(FastCall& call, const at::Tensor& y);
  // Saves what the backward will need, once the kernel has run: a hook of saved tensors may raise, which checkpoint does as
  // soon as it has all of them, and eager has written the running statistics by then.
  static void attach(std::shared_ptr<TailBackward> node, const FastCall& call, const at::Tensor& y,
                     const at::Tensor& out);

  // For kernels that find batch statistics; null where there are none.
  void* saved_statistics() const { return place_of(statistics_); }

  std::string name() const override;
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  void release_variables() override;

 private:
  using Saved = torch::autograd::SavedVariable;

  static void* place_of(const at::Tensor& statistics) {
    return statistics.defined() ? statistics.mutable_data_ptr() : nullptr;
  }

  // All that a backward reads, its own from here on: another thread that goes back through the node may release what that keeps.
  struct Inputs {
    at::Tensor y, statistics;
    TailTensors tensors;
    std::array<bool, max_operands> is_copy{};  // of a vector
  };
  Inputs unpack();  // raises eager's own error where one was written to since
  bool are_as_saved(const Inputs& found) const;
  // Behind the last norm nothing is left whose derivative would need its result.
  bool reads_norm_bias() const { return !chain_->steps.back().is_norm(); }
  Tail tail_of(const Inputs& found) const;
  torch::autograd::variable_list by_kernel(const Inputs& found, Tail tail, const at::Tensor& of_out);
  torch::autograd::variable_list by_reference(const Inputs& found, const at::Tensor& of_out);

  const Chain* chain_ = nullptr;
  DevicePaths* paths_ = nullptr;
  Tail tail_;
  at::TensorOptions kind_;  // dtype and device of everything
  Saved y_;
  bool has_bias_ = false;  // that wants a gradient: its value is not needed
  bool has_norm_bias_ = false;
  at::Tensor norm_bias_;  // our own copy, where its value is needed
  std::array<Saved, max_operands> vectors_;
  std::array<at::Tensor, max_operands> copies_;  // instead, of those that eager would not have kept
  std::array<Saved, max_operands> numbers_;      // only to see that nobody has written to them, as eager would
  Saved norm_weight_, running_mean_, running_var_;
  at::Tensor statistics_;
};

}  // namespace tailor
