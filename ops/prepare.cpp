// Whether a kernel takes a call: asked of each argument, before anything is computed.
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "fast.h"
#include "plain.h"

namespace tailor {
namespace {

using c10::IValue;

std::optional<Element> element_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return Element::float64;
    case at::kFloat:
      return Element::float32;
    case at::kBFloat16:
      return Element::bfloat16;
    case at::kHalf:
      return Element::float16;
    default:
      return std::nullopt;
  }
}

// Checks the tensors of one call, each against the first.
class Tensors {
 public:
  explicit Tensors(const at::Tensor& first)
      : type_(first.scalar_type()), device_(first.device()), grad_mode_(c10::GradMode::is_enabled()) {}

  // Null if `tensor` is an ordinary tensor of the same dtype and device.
  const char* refuse(const at::Tensor& tensor) {
    if (tensor.scalar_type() != type_) return "its tensors have more than one dtype";
    if (tensor.device() != device_) return "its tensors are on more than one device";
    wants_gradients_ = wants_gradients_ || wants_gradient_of(tensor);
    return unusual_tensor(tensor);
  }
  // A tensor that no kernel gives a gradient for.
  const char* refuse_differentiable(const at::Tensor& tensor) const {
    if (wants_gradient_of(tensor)) return "the gradient of a number or of a statistic is wanted";
    return unusual_tensor(tensor);
  }
  bool wants_gradient_of(const at::Tensor& tensor) const { return grad_mode_ && tensor.requires_grad(); }
  bool wants_gradients() const { return wants_gradients_; }

 private:
  at::ScalarType type_;
  c10::Device device_;
  bool grad_mode_;
  bool wants_gradients_ = false;
};

// A vector of the formula: one value for each column, or one for all.
const char* take_vector(const IValue& value, Tensors& tensors, std::int64_t columns, std::int64_t rank,
                        Operand& operand, at::Tensor& taken) {
  const at::Tensor& vector = value.toTensor();
  if (const char* why = tensors.refuse(vector)) return why;
  if (vector.dim() > rank) return "an operand has more dimensions than the linear's result";
  operand.per_column = vector.numel() != 1;
  if (operand.per_column) {
    if (vector.numel() != columns || vector.size(-1) != columns) return "an operand is not one value for each column";
    if (vector.stride(-1) != 1) return "an operand is not contiguous";
  }
  taken = vector;
  return nullptr;
}

const char* take_scalar(const IValue& value, const Tensors& tensors, double& number) {
  if (value.isTensor()) {
    // Elsewhere than on the CPU, reading it would mean to wait for the device.
    const at::Tensor& tensor = value.toTensor();
    if (tensor.dim() != 0 || !tensor.device().is_cpu())
      return "a number is a tensor that is not on the CPU, or has a shape";
    if (const char* why = tensors.refuse_differentiable(tensor)) return why;
    if (tensor.is_complex()) return "a number is complex";
    number = tensor.item().toDouble();
    return nullptr;
  }
  const at::Scalar scalar = value.toScalar();
  if (scalar.isComplex() || scalar.isSymbolic()) return "a number is complex or symbolic";
  number = scalar.toDouble();
  return nullptr;
}

// A parameter or a statistic of the norm, which may be missing.
const char* take_column(const IValue& value, Tensors& tensors, std::int64_t columns, at::Tensor& taken) {
  if (value.isNone()) return nullptr;
  const at::Tensor& tensor = value.toTensor();
  if (const char* why = tensors.refuse(tensor)) return why;
  if (tensor.dim() != 1 || tensor.size(0) != columns) return "a parameter of the norm does not fit the columns";
  if (columns > 1 && tensor.stride(0) != 1) return "a parameter of the norm is not contiguous";
  taken = tensor;
  return nullptr;
}

const char* take_eps(double eps, NormArguments& norm) {
  norm.eps = eps;
  // 1 / sqrt(0) and the root of a negative number are eager's to answer; and kernels may flush what is far below.
  return eps > 1e-30 ? nullptr : "eps is not positive, or next to nothing";
}

const char* take_group_norm(const IValue* argument, Tensors& tensors, Tail& tail, TailTensors& taken) {
  tail.norm.groups = argument[0].toInt();
  if (tail.norm.groups < 1 || tail.columns % tail.norm.groups != 0) return "the groups do not divide the columns";
  if (const char* why = take_column(argument[1], tensors, tail.columns, taken.norm_weight)) return why;
  if (const char* why = take_column(argument[2], tensors, tail.columns, taken.norm_bias)) return why;
  const bool is_all_bias = !taken.norm_weight.defined() && taken.norm_bias.defined();
  if (is_all_bias && tensors.wants_gradient_of(taken.norm_bias))
    return "torch has no gradients of a group norm that has a bias and no weight";
  return take_eps(argument[3].toDouble(), tail.norm);
}

// From a tensor's first element to its last.
std::int64_t extent(const at::Tensor& tensor) {
  std::int64_t elements = 1;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) elements += (tensor.size(i) - 1) * tensor.stride(i);
  return elements * tensor.element_size();
}

// By addresses, since two storages may lie on the same memory (numpy, DLPack). Neither is empty.
bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return false;
  const auto* first = static_cast<const char*>(a.const_data_ptr());
  const auto* second = static_cast<const char*>(b.const_data_ptr());
  return first < second + extent(b) && second < first + extent(a);
}

const char* take_batch_norm(const IValue* argument, Norm kind, Tensors& tensors, Tail& tail, TailTensors& taken) {
  if (const char* why = take_column(argument[0], tensors, tail.columns, taken.norm_weight)) return why;
  if (const char* why = take_column(argument[1], tensors, tail.columns, taken.norm_bias)) return why;
  const at::Tensor& mean = taken.running_mean;
  const at::Tensor& var = taken.running_var;
  for (const int i : {2, 3}) {
    at::Tensor& statistic = i == 2 ? taken.running_mean : taken.running_var;
    if (const char* why = take_column(argument[i], tensors, tail.columns, statistic)) return why;
    if (!statistic.defined()) continue;
    if (const char* why = tensors.refuse_differentiable(statistic)) return why;
  }
  if (mean.defined() != var.defined()) return "one of the running statistics is missing";
  NormArguments& norm = tail.norm;
  norm.batch_statistics = kind == Norm::as_called && argument[4].toBool();
  if (norm.batch_statistics) {
    if (tail.rows < 2) return "batch statistics need two rows";
    norm.momentum = argument[5].toDouble();
    // Eager rounds it to the dtype of its arithmetic.
    const double rounded = tail.element == Element::float64 ? norm.momentum : static_cast<float>(norm.momentum);
    if (norm.momentum != 0 && (rounded == 0 || !std::isfinite(rounded))) return "the momentum is no float32 number";
  } else if (!mean.defined()) {
    return "there are no running statistics";
  }
  return take_eps(argument[kind == Norm::as_called ? 6 : 4].toDouble(), norm);
}

// Running statistics are written while others read their own: where that is the same memory, only eager knows the order.
bool writes_what_it_reads(const FastCall& call) {
  const TailTensors& taken = call.tensors;
  const auto shares = [&](const at::Tensor& other) {
    return shares_memory(taken.running_mean, other) || shares_memory(taken.running_var, other);
  };
  return shares(taken.norm_weight) || shares(taken.norm_bias) || shares_memory(taken.running_mean, taken.running_var) ||
         std::any_of(taken.vectors.begin(), taken.vectors.end(), shares) ||
         std::any_of(call.numbers.begin(), call.numbers.end(), shares);
}

// Eager raises at the operation that such a tensor comes to, which may be before or behind what writes statistics.
bool is_any_refused_by_autograd(const FastCall& call) {
  constexpr auto is_refused = &is_refused_by_autograd;
  const auto& [vectors, weight, bias, mean, var] = call.tensors;
  return std::any_of(vectors.begin(), vectors.end(), is_refused) ||
         std::any_of(call.numbers.begin(), call.numbers.end(), is_refused) || is_refused(call.input) ||
         is_refused(call.weight) || is_refused(call.bias) || is_refused(weight) || is_refused(bias) ||
         is_refused(mean) || is_refused(var);
}

}  // namespace

bool writes_what_the_linear_reads(const FastCall& call) {
  const auto shares = [&](const at::Tensor& other) {
    return shares_memory(call.tensors.running_mean, other) || shares_memory(call.tensors.running_var, other);
  };
  return call.tail.norm.batch_statistics && (shares(call.input) || shares(call.weight) || shares(call.bias));
}

const char* FastPath::prepare(const StepArguments* arguments, FastCall& call) {
  const IValue* linear = arguments[0].first;
  call.input = linear[0].toTensor();
  call.weight = linear[1].toTensor();
  if (!call.input.is_cpu() && !call.input.is_cuda()) return "there are kernels for the CPU and for CUDA only";
  call.paths = &on(call.input.is_cpu() ? Device::cpu : Device::cuda);
  const TailKernels* kernels = call.paths->kernels;
  if (kernels == nullptr) return "there is no kernel for this chain and device";
  if (const char* why = unusual_thread()) return why;

  Tensors tensors(call.input);
  const auto element = element_of(call.input.scalar_type());
  if (!element) return "there are kernels for floating dtypes only";
  Tail& tail = call.tail;
  tail.element = *element;
  for (const at::Tensor* tensor : {&call.input, &call.weight})
    if (const char* why = tensors.refuse(*tensor)) return why;
  if (call.weight.dim() != 2 || call.input.dim() < 1 || call.input.size(-1) != call.weight.size(1))
    return "input and weight do not fit";
  tail.columns = call.weight.size(0);
  if (!linear[2].isNone()) {
    call.bias = linear[2].toTensor();
    if (const char* why = tensors.refuse(call.bias)) return why;
    if (call.bias.dim() != 1 || call.bias.size(0) != tail.columns) return "the bias does not fit";
  }
  tail.rows = 1;
  for (std::int64_t i = 0; i + 1 < call.input.dim(); ++i) tail.rows *= call.input.size(i);
  if (tail.rows == 0 || tail.columns == 0) return "it is empty";

  std::size_t vectors = 0;
  std::size_t scalars = 0;
  for (std::size_t i = 0; i < chain_.steps.size(); ++i) {
    const Step& step = chain_.steps[i];
    const IValue* argument = arguments[i].first;
    const char* why = nullptr;
    if (step.is_norm() && call.input.dim() != 2) return "a norm's channels are not the columns";
    if (step.kind == Step::Kind::vector) {
      if (vectors == max_operands) return "it has more vectors than a kernel takes";
      why = take_vector(*argument, tensors, tail.columns, call.input.dim(), tail.vectors[vectors],
                        call.tensors.vectors[vectors]);
      ++vectors;
    } else if (step.kind == Step::Kind::scalar) {
      if (scalars == max_operands) return "it has more numbers than a kernel takes";
      if (argument->isTensor()) call.numbers[scalars] = argument->toTensor();
      why = take_scalar(*argument, tensors, tail.scalars[scalars++]);
    } else if (step.kind == Step::Kind::batch_norm) {
      why = take_batch_norm(argument, call.norm, tensors, tail, call.tensors);
    } else if (step.kind == Step::Kind::group_norm) {
      why = take_group_norm(argument, tensors, tail, call.tensors);
    }
    if (why != nullptr) return why;
  }
  if (tail.norm.batch_statistics && writes_what_it_reads(call)) return "running statistics are also an operand";
  call.wants_gradients = tensors.wants_gradients();
  if (call.wants_gradients) {
    if (is_any_refused_by_autograd(call)) return "autograd refuses one of its tensors";
    if (kernels->backward == nullptr) return "gradients are wanted, and there is no backward kernel";
    // What eager keeps of the other operands depends on this; it is not worth telling the cases apart.
    if (!call.input.requires_grad() && !call.weight.requires_grad() &&
        !(call.bias.defined() && call.bias.requires_grad()))
      return "gradients are wanted of the tail's operands alone";
  }
  point_at(tail, call.tensors);
  return kernels->refuses(tail, call.wants_gradients);
}

}  // namespace tailor
