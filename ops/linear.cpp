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

// x · weightᵀ + bias by a kernel of ours, if one takes that. `parameter` is the weight where what was kept of it may be used; a backward's
// products have none.
class Product {
 public:
  Product(const Operand& x, const Operand& weight, const at::Tensor& bias = {}, const at::Tensor& parameter = {})
      : kind_(x.matrix.options().requires_grad(false)), parameter_(parameter) {
    if (!x.is_dense() || !weight.is_dense() || !is_dense_vector(bias)) return;
    linear_ = linear_of(x.matrix, x.matrix.stride(0), weight.matrix, bias);
    linear_.inner = x.inner();
    linear_.x_transposed = x.transposed;
    linear_.weight_transposed = weight.transposed;
    linear_.of_gradients = !parameter.defined();
    tail_.element = Element::float32;
    tail_.rows = x.rows();
    tail_.columns = weight.rows();
    if (parameter.defined()) paths().settle(linear_, tail_, parameter);
    taker_ = paths().taker(linear_, tail_);
  }

  // Undefined where no kernel takes it.
  at::Tensor run() {
    return taker_ == nullptr ? at::Tensor()
                             : taker_->run(linear_, tail_, {tail_.rows, tail_.columns}, kind_, parameter_);
  }

  // What this one and another read of the same x, for as long as both run.
  at::Tensor share_with(Product& transposed) {
    if (taker_ == nullptr || taker_ != transposed.taker_) return {};
    return taker_->share(linear_, tail_, transposed.linear_, transposed.tail_, kind_);
  }

 private:
  Linear linear_;
  Tail tail_;
  WholePath* taker_ = nullptr;
  at::TensorOptions kind_;
  at::Tensor parameter_;
};

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
    const bool wants_both = task_should_compute_output(0) && task_should_compute_output(1);
    if (wants_both && !x_by_columns_ && w_by_columns_ && may_multiply(of_out, w.t()) && may_multiply(of_out.t(), x))
      return both(of_out, x, w);
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
  static bool may_multiply(const at::Tensor& a, const at::Tensor& b) {
    return may_take(a) && is_ordinary(a, b) && a.size(1) == b.size(0);
  }
  static at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
    if (may_multiply(a, b)) {
      const c10::OptionalDeviceGuard guard(a.device());
      if (at::Tensor out = Product(operand_of(a), operand_of(b.t())).run(); out.defined()) return out;
    }
    return a.mm(b);
  }

  // Both products, perhaps of what is made of `of_out` once for the two.
  static variable_list both(const at::Tensor& of_out, const at::Tensor& x, const at::Tensor& w) {
    const c10::OptionalDeviceGuard guard(of_out.device());
    Product of_x(operand_of(of_out), operand_of(w));
    Product of_w(operand_of(of_out.t()), operand_of(x.t()));
    const at::Tensor shared = of_x.share_with(of_w);
    variable_list made = {of_x.run(), of_w.run()};
    if (!made[0].defined()) made[0] = of_out.mm(w.t());
    if (!made[1].defined()) made[1] = of_out.t().mm(x);
    made[1] = made[1].t();
    return made;
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
    out = Product({as_matrix(input)}, {weight}, bias, weight).run();
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
