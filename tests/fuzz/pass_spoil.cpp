#include "pass_spoil.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "pass_run.h"

namespace tailor::fuzz {
namespace {

std::atomic<std::int64_t> spoiled = 0;  // what is forked has threads

// In 16 bits such a difference is not one: rounding may leave as much.
bool is_sharp(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble || tensor.scalar_type() == at::kFloat;
}

double largest(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0 || !is_sharp(tensor) || !tensor.isfinite().all().item().toBool())
    return 0;
  return tensor.abs().max().item().toDouble();
}

bool scale_gradient(const at::Tensor& tensor) {
  if (largest(tensor.grad()) < 1e-3) return false;
  tensor.mutable_grad() = tensor.grad() * 1.1;
  return true;
}

}  // namespace

std::int64_t Spoiler::count() { return spoiled; }

bool Spoiler::note(bool is_spoiled) {
  spoiled += is_spoiled;
  return is_spoiled;
}

void Spoiler::before(const std::vector<at::Tensor>& state) {
  state_.clear();
  if (what_ != "buffer") return;
  for (const at::Tensor& tensor : state) state_.push_back(tensor.detach().clone());
}

void Spoiler::after(Outcome& outcome, const std::vector<at::Tensor>& state) {
  const at::AutoGradMode off(false);
  note(spoil(outcome, state));
}

bool Spoiler::spoil(Outcome& outcome, const std::vector<at::Tensor>& state) const {
  if (what_ == "crash") std::abort();
  if (what_ == "new-error") {
    if (!outcome.error.empty()) return false;
    outcome.error = "planted";
    return true;
  }
  if (what_ == "lost-error" || what_ == "text") {
    // Refusals to go back through what was written to are told apart by that alone, and some are known to be gone.
    const bool is_refusal = outcome.error.find("modified by an inplace operation") != std::string::npos;
    if (outcome.error.empty() || is_refusal) return false;
    outcome.error = what_ == "text" ? outcome.error + "!" : "";
    return true;
  }
  if (what_ == "input") {
    outcome.input = (outcome.input.detach() + 1).set_requires_grad(outcome.input.requires_grad());
    return outcome.input.numel() > 0 && (is_sharp(outcome.input) || outcome.input.scalar_type() == at::kLong);
  }
  if (what_ == "parameter") {
    const auto one = std::ranges::find_if(
        state, [](const at::Tensor& each) { return each.requires_grad() && is_sharp(each) && each.numel() > 0; });
    if (one == state.end()) return false;
    one->detach().add_(1);
    return true;
  }
  if (what_ == "buffer") {
    for (std::size_t i = 0; i < state.size(); ++i) {
      const at::Tensor now = state[i].detach();
      const bool is_written = now.sizes() == state_[i].sizes() && !now.requires_grad() && !now.equal(state_[i]);
      const bool shows = now.scalar_type() == at::kLong || largest(now - state_[i]) > 1e-2;
      if (!is_written || !shows) continue;
      now.copy_(state_[i]);
      return true;
    }
    return false;
  }
  if (what_ == "input-gradient") return scale_gradient(outcome.input);
  if (what_ == "gradient" || what_ == "no-gradient") {
    const auto one = std::ranges::max_element(
        state, {}, [](const at::Tensor& each) { return each.requires_grad() ? largest(each.grad()) : 0.0; });
    if (one == state.end() || !one->requires_grad()) return false;
    if (what_ == "gradient") return scale_gradient(*one);
    const bool was_there = one->grad().defined();
    one->mutable_grad() = at::Tensor();
    return was_there;
  }
  return outcome.error.empty() && spoil_values(outcome.values);
}

bool Spoiler::spoil_values(std::vector<at::Tensor>& values) const {
  if (values.empty()) return false;
  if (what_ == "results") {
    values.pop_back();
    return true;
  }
  at::Tensor& value = values.front();
  if (what_ == "history") {
    const bool had = value.requires_grad();
    value = value.detach();
    return had;
  }
  if (!value.is_floating_point()) return false;
  const bool had = value.requires_grad();
  if (what_ == "dtype") {
    value = value.detach().to(value.scalar_type() == at::kDouble ? at::kFloat : at::kDouble);
  } else if (what_ == "shape") {
    value = value.detach().unsqueeze(0);
  } else if (what_ == "strides") {
    if (value.dim() != 2 || value.size(0) < 2 || value.size(1) < 2 || !value.is_contiguous()) return false;
    value = value.detach().t().contiguous().t();
  } else if (what_ == "result") {
    if (largest(value) < 1e-1) return false;
    value = value.detach() * (value.scalar_type() == at::kDouble ? 1.001 : 1.1);
  } else {
    return false;
  }
  value.set_requires_grad(had);
  return true;
}

}  // namespace tailor::fuzz
