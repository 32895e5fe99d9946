// Calls of kernels that compute a linear too: for the ops, and for a linear by itself.
#pragma once
#include <ATen/core/Tensor.h>

#include <deque>
#include <optional>

#include "../kernels/whole.h"
#include "calls.h"

namespace tailor {

inline const void* data_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }

// Whether kernels can read a bias, or there is none.
inline bool is_dense_vector(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.numel() <= 1 || tensor.stride(0) == 1;
}

// As such kernels take it, by the switches of this moment.
Linear linear_of(const at::Tensor& x, std::int64_t x_stride, const at::Tensor& weight, const at::Tensor& bias);

class WholePath {
 public:
  WholePath(std::string_view op, const WholeKernels& kernels) : op_(op), kernels_(kernels), forward_(op, kernels.path) {
    if (kernels.gather != nullptr) gather_.emplace(op, kernels.gathering_path);
    if (kernels.share != nullptr) share_.emplace(op, kernels.sharing_path);
  }

  const WholeKernels& kernels() const { return kernels_; }
  bool takes(const Linear& linear, const Tail& tail) const { return kernels_.refuses(linear, tail) == nullptr; }

  // The result of a call that it takes, of these sizes; undefined where the device has no room for it now. `weight` is defined where
  // what was kept of it may be used.
  at::Tensor run(Linear& linear, Tail& tail, at::IntArrayRef sizes, const at::TensorOptions& kind,
                 const at::Tensor& weight = {});

  bool gathers(const Linear& linear, const Tail& tail) const {
    return kernels_.gather != nullptr && kernels_.refuses_gathering(linear, tail) == nullptr;
  }
  int gathered_rows() const { return kernels_.gathered_rows; }
  // The linear, into `tail.out`, and its partial statistics into the tail's workspace, of a call that it gathers for.
  void gather(const Linear& linear, const Tail& tail, c10::Device device);

  // What two calls that it takes read of the same x, the second transposed, and says so to both; undefined where they do not share.
  at::Tensor share(Linear& linear, const Tail& tail, Linear& transposed, const Tail& its_tail,
                   const at::TensorOptions& kind);

 private:
  std::string op_;
  const WholeKernels& kernels_;
  CallCounter forward_;
  std::optional<CallCounter> gather_, share_;
};

// All of an op on one kind of device. Not before the first call: kernels register themselves in no particular order.
class WholePaths {
 public:
  WholePaths(std::string_view op, Device device);

  bool empty() const { return all_.empty(); }
  // Says to those that are asked whether something of the weight can be kept.
  void settle(Linear& linear, const Tail& tail, const at::Tensor& weight) const;
  // The first that takes a call, or null.
  WholePath* taker(const Linear& linear, const Tail& tail);
  // The first that gathers the batch statistics of a call, or null.
  WholePath* gatherer(const Linear& linear, const Tail& tail);

 private:
  std::deque<WholePath> all_;
};

}  // namespace tailor
