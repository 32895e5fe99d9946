#include "whole_path.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "fast.h"
#include "float32.h"
#include "settled.h"

namespace tailor {

Linear linear_of(const at::Tensor& x, std::int64_t x_stride, const at::Tensor& weight, const at::Tensor& bias) {
  Linear linear;
  linear.x = x.const_data_ptr();
  linear.weight = weight.const_data_ptr();
  linear.bias = data_of(bias);
  linear.inner = weight.size(1);
  linear.x_stride = x_stride;
  linear.weight_stride = weight.stride(0);
  linear.tensor_float32 = tensor_float32_is_allowed();
  linear.split_float32 = split_float32_is_allowed();
  return linear;
}

at::Tensor WholePath::run(Linear& linear, Tail& tail, at::IntArrayRef sizes, const at::TensorOptions& kind,
                          const at::Tensor& weight) {
  at::Tensor out = at::empty(sizes, kind);
  tail.out = out.mutable_data_ptr();
  const at::Tensor of_weight = weight.defined() ? kept(weight, kernels_, linear, tail) : at::Tensor();
  linear.kept = data_of(of_weight);
  at::Tensor workspace;
  if (const std::int64_t bytes = kernels_.workspace != nullptr ? kernels_.workspace(linear, tail) : 0; bytes > 0) {
    workspace = at::empty({bytes}, kind.dtype(at::kByte));
    linear.workspace = workspace.mutable_data_ptr();
  }
  const char* error = kernels_.forward(linear, tail, current_stream(out.device()));
  if (error == no_room) return {};
  TORCH_CHECK(error == nullptr, "tailor::", op_, ": ", error);
  forward_.count();
  return out;
}

void WholePath::gather(const Linear& linear, const Tail& tail, c10::Device device) {
  const char* error = kernels_.gather(linear, tail, current_stream(device));
  TORCH_CHECK(error == nullptr, "tailor::", op_, ": ", error);
  gather_->count();
}

at::Tensor WholePath::share(Linear& linear, const Tail& tail, Linear& transposed, const Tail& its_tail,
                            const at::TensorOptions& kind) {
  if (!share_) return {};
  const std::int64_t bytes = kernels_.shared_bytes(linear, tail, transposed, its_tail);
  if (bytes == 0) return {};
  at::Tensor made = at::empty({bytes}, kind.dtype(at::kByte));
  const char* error = kernels_.share(linear, tail, made.mutable_data_ptr(), current_stream(made.device()));
  TORCH_CHECK(error == nullptr, "tailor::", op_, ": ", error);
  share_->count();
  linear.shared = transposed.shared = made.const_data_ptr();
  return made;
}

WholePaths::WholePaths(std::string_view op, Device device) {
  for (const WholeKernels* each : find_whole(op, device)) all_.emplace_back(op, *each);
}

void WholePaths::settle(Linear& linear, const Tail& tail, const at::Tensor& weight) const {
  linear.weight_is_settled = is_settled(weight) && std::any_of(all_.begin(), all_.end(), [&](const WholePath& path) {
                               return can_keep(weight, path.kernels(), linear, tail);
                             });
}

WholePath* WholePaths::taker(const Linear& linear, const Tail& tail) {
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const WholePath& path) { return path.takes(linear, tail); });
  return found == all_.end() ? nullptr : &*found;
}

WholePath* WholePaths::gatherer(const Linear& linear, const Tail& tail) {
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const WholePath& path) { return path.gathers(linear, tail); });
  return found == all_.end() ? nullptr : &*found;
}

}  // namespace tailor
