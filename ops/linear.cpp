#include "linear.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <vector>

#include "plain.h"
#include "settled.h"
#include "whole_path.h"

namespace tailor {
namespace {

using torch::autograd::variable_list;

// A matrix, or one that is meant transposed.
struct Operand {
  at::Tensor matrix;
  bool transposed = false;

  std::int64_t rows() const { return matrix.size(transposed ? 1 : 0); }
  std::int64_t inner() const { return matrix.size(transposed ? 0 : 1); }
  bool is_dense() const { return matrix.stride(1) == 1; }
};

WholePaths& paths() {
  static WholePaths found("linear", Device::cuda);
  return found;
}

// x · weightᵀ + bias by our kernel, or undefined where it does not take that. `parameter` is the weight where what was kept of it may
// be used.
at::Tensor by_kernel(const Operand& x, const Operand& weight, const at::Tensor& bias,
                     const at::Tensor& parameter = {}) {
  if (paths().empty() || !x.matrix.is_cuda() || x.matrix.scalar_type() != at::kFloat || !x.is_dense() ||
      !weight.is_dense() || !is_dense_vector(bias))
    return {};
  Linear linear = linear_of(x.matrix, x.matrix.stride(0), weight.matrix, bias);
  linear.inner = x.inner();
  linear.x_transposed = x.transposed;
  linear.weight_transposed = weight.transposed;
  linear.weight_is_settled = parameter.defined() && is_settled(parameter);
  Tail tail;
  tail.element = Element::float32;
  tail.rows = x.rows();
  tail.columns = weight.rows();
  WholePath* const taker = paths().taker(linear, tail);
  if (taker == nullptr) return {};
  return taker->run(linear, tail, {tail.rows, tail.columns}, x.matrix.options().requires_grad(false), parameter);
}

at::Tensor as_matrix(const at::Tensor& tensor) { return tensor.dim() == 2 ? tensor : tensor.flatten(0, -2); }

class LinearBackward final : public torch::autograd::Node {
 public:
  static void attach(const at::Tensor& out, const at::Tensor& input, const at::Tensor& weight) {
    const std::shared_ptr<LinearBackward> node(new LinearBackward, torch::autograd::deleteNode);
    node->set_next_edges(torch::autograd::collect_next_edges(input, weight));
    // Each is needed for the other's gradient.
    if (weight.requires_grad()) node->input_ = Saved(input, false);
    if (input.requires_grad()) node->weight_ = Saved(weight, false);
    torch::autograd::set_history(out, node);
  }

  std::string name() const override { return "tailor::linear_backward"; }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    input_.reset_data();
    weight_.reset_data();
  }

  variable_list apply(variable_list&& gradients) override {
    const at::Tensor& of_out = gradients.at(0);
    variable_list made(2);
    if (!of_out.defined()) return made;
    at::Tensor input;
    at::Tensor weight;
    {
      const std::lock_guard lock(mutex_);
      input = input_.unpack(shared_from_this());
      weight = weight_.unpack(shared_from_this());
    }
    const at::Tensor of_rows = as_matrix(of_out);
    if (task_should_compute_output(0))
      made[0] = product({of_rows}, {weight, true}).view_symint(input_sizes(of_out, weight));
    if (task_should_compute_output(1)) made[1] = product({of_rows, true}, {as_matrix(input), true});
    return made;
  }

 private:
  using Saved = torch::autograd::SavedVariable;

  static c10::SymDimVector input_sizes(const at::Tensor& of_out, const at::Tensor& weight) {
    c10::SymDimVector sizes(of_out.sym_sizes().begin(), of_out.sym_sizes().end());
    sizes.back() = weight.sym_size(1);
    return sizes;
  }
  // Gradients that are differentiated again are torch's to make, and so is what hooks and `.data =` have put in a saved
  // tensor's place.
  static bool is_ordinary(const at::Tensor& a, const at::Tensor& b) {
    return !c10::GradMode::is_enabled() && unusual_thread() == nullptr && unusual_tensor(a) == nullptr &&
           unusual_tensor(b) == nullptr && a.device() == b.device() && a.scalar_type() == b.scalar_type();
  }
  static at::Tensor product(const Operand& a, const Operand& b) {  // a · bᵀ
    if (is_ordinary(a.matrix, b.matrix) && a.inner() == b.inner()) {
      const c10::OptionalDeviceGuard guard(a.matrix.device());
      if (at::Tensor out = by_kernel(a, b, {}); out.defined()) return out;
    }
    return (a.transposed ? a.matrix.t() : a.matrix).mm(b.transposed ? b.matrix : b.matrix.t());
  }

  Saved input_, weight_;
};

}  // namespace

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  const bool is_matrix = input.dim() == 2 || (input.dim() > 2 && input.is_contiguous());
  if (!is_matrix) return at::linear(input, weight, bias);
  at::Tensor out;
  {
    const c10::AutoGradMode off(false);  // the node is our own
    out = by_kernel({as_matrix(input)}, {weight}, bias, weight);
    if (out.defined() && input.dim() != 2) {
      std::vector<std::int64_t> sizes = input.sizes().vec();
      sizes.back() = weight.size(0);
      out = at::_unsafe_view(out, sizes);
    }
  }
  if (!out.defined()) return at::linear(input, weight, bias);
  differentiate_linear(out, input, weight);
  return out;
}

void differentiate_linear(const at::Tensor& out, const at::Tensor& input, const at::Tensor& weight) {
  if (c10::GradMode::is_enabled() && (input.requires_grad() || weight.requires_grad()))
    LinearBackward::attach(out, input, weight);
}

}  // namespace tailor
