#include "backward.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "plain.h"

namespace tailor {
namespace {

using torch::autograd::variable_list;

// The node's inputs.
enum Input : std::size_t { linear, bias, first_vector, norm_weight = first_vector + max_operands, norm_bias, inputs };

at::ScalarType arithmetic_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Calls `visit` with the number of each vector of the formula and the operation that reads it.
template <class Visit>
void for_each_vector(const Chain& chain, Visit visit) {
  std::size_t vector = 0;
  for (std::size_t i = 0; i < chain.steps.size(); ++i) {
    if (chain.steps[i].kind != Step::Kind::vector) continue;
    const auto reads = [&](const Step& step) {
      return step.left == static_cast<int>(i) || step.right == static_cast<int>(i);
    };
    visit(vector++, *std::find_if(chain.steps.begin(), chain.steps.end(), reads));
  }
}

// A variable of its own with the same value: a derivative with respect to it ends there, and does not go on to what the
// variable was made from, among which may be the other inputs.
at::Tensor cut(const at::Tensor& tensor) { return tensor.defined() ? tensor.view_as(tensor) : tensor; }

// A copy that autograd knows nothing of: what the node is given of the original is its place in the graph, where that wants gradients.
at::Tensor copy_of(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView no_history;
  return tensor.clone();
}

// A variable of its own with the copy's value, in the original's place in the graph.
at::Tensor in_place_of(const torch::autograd::Edge& original, const at::Tensor& copy) {
  if (!copy.defined() || !original.is_valid()) return copy;
  at::Tensor own = copy.tensor_data();
  torch::autograd::impl::set_gradient_edge(own, original);
  return own;
}

c10::IValue optional_value(const at::Tensor& tensor) { return tensor.defined() ? c10::IValue(tensor) : c10::IValue(); }

}  // namespace

std::shared_ptr<TailBackward> TailBackward::prepare(FastCall& call, const at::Tensor& y) {
  const std::shared_ptr<TailBackward> node(new TailBackward, torch::autograd::deleteNode);
  TailTensors& tensors = call.tensors;
  static_assert(max_operands == 2);
  const at::Tensor own_bias = call.bias.defined() && call.bias.requires_grad() ? call.bias : at::Tensor();
  node->set_next_edges(torch::autograd::collect_next_edges(y, own_bias, tensors.vectors[0], tensors.vectors[1],
                                                           tensors.norm_weight, tensors.norm_bias));
  node->chain_ = call.chain;
  // Eager keeps neither the operand of an addition nor the bias of a norm, so that writing to them is allowed.
  for_each_vector(*call.chain, [&](std::size_t i, const Step& reader) {
    if (reader.kind == Step::Kind::add) tensors.vectors[i] = node->copies_[i] = copy_of(tensors.vectors[i]);
  });
  node->has_norm_bias_ = tensors.norm_bias.defined();
  if (node->has_norm_bias_ && node->reads_norm_bias())
    tensors.norm_bias = node->norm_bias_ = copy_of(tensors.norm_bias);
  node->paths_ = call.paths;
  node->tail_ = call.tail;
  node->tail_.out = node->tail_.norm.workspace = nullptr;  // of the forward, and gone when that returns
  node->tail_.norm.gathered_rows = 0;
  node->kind_ = y.options();
  node->has_bias_ = own_bias.defined();
  if (call.tail.norm.batch_statistics)
    node->statistics_ = at::empty({2, call.tail.columns}, y.options().dtype(arithmetic_type(y)).requires_grad(false));
  return node;
}

void TailBackward::attach(std::shared_ptr<TailBackward> node, const FastCall& call, const at::Tensor& y,
                          const at::Tensor& out) {
  const TailTensors& tensors = call.tensors;
  node->y_ = Saved(y, false);
  for (std::size_t i = 0; i < max_operands; ++i) {
    if (!node->copies_[i].defined()) node->vectors_[i] = Saved(tensors.vectors[i], false);
    node->numbers_[i] = Saved(call.numbers[i], false);
  }
  node->norm_weight_ = Saved(tensors.norm_weight, false);
  node->running_mean_ = Saved(tensors.running_mean, false);
  node->running_var_ = Saved(tensors.running_var, false);
  torch::autograd::set_history(out, std::move(node));
}

std::string TailBackward::name() const { return "tailor::" + std::string(chain_->name) + "_backward"; }

void TailBackward::release_variables() {
  const std::lock_guard lock(mutex_);
  for (Saved* saved : {&y_, &norm_weight_, &running_mean_, &running_var_}) saved->reset_data();
  for (auto* several : {&vectors_, &numbers_})
    for (Saved& saved : *several) saved.reset_data();
  for (at::Tensor& copy : copies_) copy.reset();
  statistics_.reset();
  norm_bias_.reset();
}

TailBackward::Inputs TailBackward::unpack() {
  const std::lock_guard lock(mutex_);
  const auto self = shared_from_this();
  Inputs found;
  found.y = y_.unpack(self);
  found.statistics = statistics_;
  for (std::size_t i = 0; i < max_operands; ++i) {
    found.is_copy[i] = copies_[i].defined();
    found.tensors.vectors[i] = found.is_copy[i] ? copies_[i] : vectors_[i].unpack(self);
    numbers_[i].unpack(self);
  }
  found.tensors.norm_weight = norm_weight_.unpack(self);
  found.tensors.norm_bias = norm_bias_;
  found.tensors.running_mean = running_mean_.unpack(self);
  found.tensors.running_var = running_var_.unpack(self);
  return found;
}

// `parameter.data = …`, which is what `module.half()` does, and hooks of saved tensors put another tensor in a saved one's
// place, of which no version tells. What eager makes of that the reference knows.
bool TailBackward::are_as_saved(const Inputs& found) const {
  const auto is_like = [&](const at::Tensor& tensor, std::int64_t size) {
    return tensor.scalar_type() == c10::typeMetaToScalarType(kind_.dtype()) && tensor.device() == kind_.device() &&
           unusual_tensor(tensor) == nullptr && tensor.numel() == size;
  };
  const auto is_row = [&](const at::Tensor& tensor) {
    const std::int64_t columns = tail_.columns;
    if (!tensor.defined()) return true;
    return is_like(tensor, columns) && (columns == 1 || (tensor.size(-1) == columns && tensor.stride(-1) == 1));
  };
  if (!is_like(found.y, tail_.rows * tail_.columns) || !found.y.is_contiguous() || !is_aligned(found.y)) return false;
  const TailTensors& taken = found.tensors;
  for (std::size_t i = 0; i < max_operands; ++i) {
    const at::Tensor& vector = taken.vectors[i];
    if (!(tail_.vectors[i].per_column || !vector.defined() ? is_row(vector) : is_like(vector, 1))) return false;
  }
  return is_row(taken.norm_weight) && (!reads_norm_bias() || is_row(taken.norm_bias)) && is_row(taken.running_mean) &&
         is_row(taken.running_var);
}

variable_list TailBackward::apply(variable_list&& gradients) {
  const at::Tensor& of_out = gradients.at(0);
  const Inputs found = unpack();
  if (!of_out.defined()) return variable_list(inputs);
  const bool ordinary =
      !c10::GradMode::is_enabled() && unusual_thread() == nullptr && unusual_tensor(of_out) == nullptr;
  if (!ordinary || !are_as_saved(found)) return by_reference(found, of_out);
  const Tail tail = tail_of(found);
  // What lies elsewhere than at the forward may lie so that no packets can be read.
  return paths_->kernels->refuses(tail, true) == nullptr ? by_kernel(found, tail, of_out) : by_reference(found, of_out);
}

Tail TailBackward::tail_of(const Inputs& found) const {
  Tail tail = tail_;
  point_at(tail, found.tensors);
  if (!reads_norm_bias()) tail.norm.bias = nullptr;
  tail.y = found.y.const_data_ptr();
  return tail;
}

variable_list TailBackward::by_kernel(const Inputs& found, Tail tail, const at::Tensor& of_out) {
  const c10::OptionalDeviceGuard guard(found.y.device());
  at::Tensor dense = of_out.contiguous();
  if (!is_aligned(dense)) dense = dense.clone();
  tail.norm.saved = place_of(found.statistics);
  variable_list made(inputs);
  TailGradient gradient;
  gradient.of_out = dense.const_data_ptr();
  made[linear] = at::empty_like(found.y);
  gradient.of_y = made[linear].mutable_data_ptr();

  const auto columns = found.y.options();
  const auto wants_sum = [&](std::size_t input, void*& destination, bool one_for_all = false) {
    if (!task_should_compute_output(input)) return;
    made[input] = at::empty({one_for_all ? 1 : tail.columns}, columns);
    destination = made[input].mutable_data_ptr();
  };
  wants_sum(bias, gradient.of_bias);
  for (std::size_t i = 0; i < max_operands; ++i)
    wants_sum(first_vector + i, gradient.of_vectors[i], !tail.vectors[i].per_column);
  wants_sum(norm_weight, gradient.of_norm_weight);
  wants_sum(norm_bias, gradient.of_norm_bias);

  const at::Tensor workspace = at::empty({paths_->kernels->backward_workspace(tail)}, columns.dtype(at::kByte));
  gradient.workspace = workspace.mutable_data_ptr();
  const char* error = paths_->kernels->backward(tail, gradient, current_stream(found.y.device()));
  TORCH_CHECK(error == nullptr, name(), ": ", error);
  paths_->backward->count();

  for (std::size_t i = 0; i < max_operands; ++i) {
    at::Tensor& sum = made[first_vector + i];
    if (!sum.defined()) continue;
    sum = sum.view(found.tensors.vectors[i].sizes());
  }
  if (!task_should_compute_output(linear)) made[linear].reset();
  return made;
}

// As torch would have it had there been no kernel: for gradients that are differentiated again, or batched by vmap.
variable_list TailBackward::by_reference(const Inputs& found, const at::Tensor& of_out) {
  const bool differentiated_again = c10::GradMode::is_enabled();
  const c10::AutoGradMode enabled(true);
  variable_list own(inputs);
  own[linear] = cut(found.y);
  // Of what is only added values are not needed, nor what became of them: but their places, and sizes.
  const auto of_any_value = [&](bool there, std::size_t input) {
    return there ? cut(in_place_of(next_edge(input), at::zeros({tail_.columns}, kind_.requires_grad(false))))
                 : at::Tensor();
  };
  own[bias] = of_any_value(has_bias_, bias);
  for (std::size_t i = 0; i < max_operands; ++i) {
    const at::Tensor& vector = found.tensors.vectors[i];
    own[first_vector + i] = cut(found.is_copy[i] ? in_place_of(next_edge(first_vector + i), vector) : vector);
  }
  own[norm_weight] = cut(found.tensors.norm_weight);
  own[norm_bias] = reads_norm_bias() ? cut(in_place_of(next_edge(norm_bias), found.tensors.norm_bias))
                                     : of_any_value(has_norm_bias_, norm_bias);

  // The bias is in y already, though not in its history: it gets there by being added once more, and the sum is then
  // overwritten with y. What is added to undo it, bias - bias, would be NaN of an infinite one.
  at::Tensor y = own[linear];
  if (own[bias].defined()) {
    y = y + own[bias];
    y.detach().copy_(found.y.detach());
  }

  const NormArguments& norm = tail_.norm;
  std::vector<std::vector<c10::IValue>> values(chain_->steps.size());
  std::vector<StepArguments> arguments(values.size());
  std::size_t vectors = 0;
  std::size_t scalars = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (chain_->steps[i].kind) {
      case Step::Kind::vector:
        values[i] = {own[first_vector + vectors++]};
        break;
      case Step::Kind::scalar:
        values[i] = {tail_.scalars[scalars++]};
        break;
      case Step::Kind::batch_norm:
        // The running statistics have been updated; with batch statistics they are not read.
        values[i] = {optional_value(own[norm_weight]),
                     optional_value(own[norm_bias]),
                     norm.batch_statistics ? c10::IValue() : c10::IValue(found.tensors.running_mean),
                     norm.batch_statistics ? c10::IValue() : c10::IValue(found.tensors.running_var),
                     norm.batch_statistics,
                     norm.momentum,
                     norm.eps,
                     false};
        break;
      case Step::Kind::group_norm:
        values[i] = {norm.groups, optional_value(own[norm_weight]), optional_value(own[norm_bias]), norm.eps, false};
        break;
      default:
        break;
    }
    arguments[i].first = values[i].data();
  }
  const at::Tensor out = reference_of_tail(*chain_, arguments.data(), Norm::as_called, y);

  variable_list wanted;
  for (std::size_t i = 0; i < inputs; ++i)
    if (task_should_compute_output(i)) wanted.push_back(own[i]);
  variable_list found_gradients =
      torch::autograd::grad({out}, wanted, {of_out}, differentiated_again, differentiated_again, /*allow_unused=*/true);
  variable_list made(inputs);
  std::size_t next = 0;
  for (std::size_t i = 0; i < inputs; ++i)
    if (task_should_compute_output(i)) made[i] = std::move(found_gradients[next++]);
  return made;
}

}  // namespace tailor
