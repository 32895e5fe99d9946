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

Operand operand_of(const at::Tensor& matrix) {
  if (matrix.stride(1) != 1 && matrix.stride(0) == 1) return {matrix.t(), true};
  return {matrix};
}

WholePaths& paths() {
  static WholePaths found("linear", Device::cuda);
  return found;
}

// Asked before any view is made: most matrices are none of ours.
bool may_take(const at::Tensor& matrix) {
  return matrix.scalar_type() == at::kFloat && matrix.is_cuda() && !paths().empty();
}

// x · weightᵀ + bias by our kernel, or undefined where it does not take that. `parameter` is the weight where what was kept of it may
// be used.
at::Tensor by_kernel(const Operand& x, const Operand& weight, const at::Tensor& bias,
                     const at::Tensor& parameter = {}) {
  if (!x.is_dense() || !weight.is_dense() || !is_dense_vector(bias)) return {};
  Linear linear = linear_of(x.matrix, x.matrix.stride(0), weight.matrix, bias);
  linear.inner = x.inner();
  linear.x_transposed = x.transposed;
  linear.weight_transposed = weight.transposed;
  Tail tail;
  tail.element = Element::float32;
  tail.rows = x.rows();
  tail.columns = weight.rows();
  if (parameter.defined()) paths().settle(linear, tail, parameter);
  WholePath* const taker = paths().taker(linear, tail);
  if (taker == nullptr) return {};
  return taker->run(linear, tail, {tail.rows, tail.columns}, x.matrix.options().requires_grad(false), parameter);
}

at::Tensor as_matrix(const at::Tensor& tensor) { return tensor.dim() == 2 ? tensor : tensor.flatten(0, -2); }

// Where torch says that a matrix lies column by column, its gradient does too.
bool lies_by_columns(const at::Tensor& matrix) { return matrix.stride(0) == 1 && matrix.stride(1) == matrix.size(0); }

// Of out = x · w. Gradients lie in memory as those of torch's own product do, also once they are differentiated again: so
// each is made as torch makes it, and `w` is a view of the weight, as it is there.
class ProductBackward final : public torch::autograd::Node {
 public:
  static void attach(const at::Tensor& out, const at::Tensor& x, const at::Tensor& w) {
    const std::shared_ptr<ProductBackward> node(new ProductBackward, torch::autograd::deleteNode);
    node->set_next_edges(torch::autograd::collect_next_edges(x, w));
    node->x_by_columns_ = lies_by_columns(x);
    node->w_by_columns_ = lies_by_columns(w);
    // Each is needed for the other's gradient.
    if (w.requires_grad()) node->x_ = Saved(x, false);
    if (x.requires_grad()) node->w_ = Saved(w, false);
    torch::autograd::set_history(out, node);
  }

  std::string name() const override { return "tailor::linear_backward"; }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    x_.reset_data();
    w_.reset_data();
  }

  variable_list apply(variable_list&& gradients) override {
    const at::Tensor& of_out = gradients.at(0);
    variable_list made(2);
    if (!of_out.defined()) return made;
    at::Tensor x;
    at::Tensor w;
    {
      const std::lock_guard lock(mutex_);
      x = x_.unpack(shared_from_this());
      w = w_.unpack(shared_from_this());
    }
    if (task_should_compute_output(0)) made[0] = x_by_columns_ ? product(w, of_out.t()).t() : product(of_out, w.t());
    if (task_should_compute_output(1)) made[1] = w_by_columns_ ? product(of_out.t(), x).t() : product(x.t(), of_out);
    return made;
  }

 private:
  using Saved = torch::autograd::SavedVariable;

  // Gradients that are differentiated again are torch's to make, and so is what hooks and `.data =` have put in a saved
  // tensor's place.
  static bool is_ordinary(const at::Tensor& a, const at::Tensor& b) {
    return !c10::GradMode::is_enabled() && unusual_thread() == nullptr && unusual_tensor(a) == nullptr &&
           unusual_tensor(b) == nullptr && a.device() == b.device() && a.scalar_type() == b.scalar_type();
  }
  static at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
    if (may_take(a) && is_ordinary(a, b) && a.size(1) == b.size(0)) {
      const c10::OptionalDeviceGuard guard(a.device());
      if (at::Tensor out = by_kernel(operand_of(a), operand_of(b.t()), {}); out.defined()) return out;
    }
    return a.mm(b);
  }

  Saved x_, w_;
  bool x_by_columns_ = false, w_by_columns_ = false;
};

}  // namespace

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  const bool is_matrix = input.dim() == 2 || (input.dim() > 2 && input.is_contiguous());
  if (!is_matrix || !may_take(input)) return at::linear(input, weight, bias);
  at::Tensor out;
  {
    const c10::AutoGradMode off(false);  // the node is our own
    out = by_kernel({as_matrix(input)}, {weight}, bias, weight);
  }
  return out.defined() ? differentiable_linear(out, input, weight) : at::linear(input, weight, bias);
}

at::Tensor differentiable_linear(const at::Tensor& out, const at::Tensor& input, const at::Tensor& weight) {
  if (c10::GradMode::is_enabled() && (input.requires_grad() || weight.requires_grad()))
    ProductBackward::attach(out, as_matrix(input), weight.t());
  if (input.dim() == 2) return out;
  std::vector<std::int64_t> sizes = input.sizes().vec();
  sizes.back() = weight.size(0);
  return at::_unsafe_view(out, sizes);
}

}  // namespace tailor
