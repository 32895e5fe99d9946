#include "fast.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <vector>

#include "backward.h"
#include "linear.h"
#include "plain.h"
#include "refusals.h"

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

// The same of what the linear reads, where one kernel does both.
bool writes_what_the_linear_reads(const FastCall& call) {
  const auto shares = [&](const at::Tensor& other) {
    return shares_memory(call.tensors.running_mean, other) || shares_memory(call.tensors.running_var, other);
  };
  return call.tail.norm.batch_statistics && (shares(call.input) || shares(call.weight) || shares(call.bias));
}

// Eager raises at the operation that such a tensor comes to, which may be before or behind what writes statistics.
bool is_any_refused_by_autograd(const FastCall& call) {
  const auto is_refused = [](const at::Tensor& tensor) { return tensor.defined() && is_refused_by_autograd(tensor); };
  const auto& [vectors, weight, bias, mean, var] = call.tensors;
  return std::any_of(vectors.begin(), vectors.end(), is_refused) ||
         std::any_of(call.numbers.begin(), call.numbers.end(), is_refused) || is_refused(call.input) ||
         is_refused(call.weight) || is_refused(call.bias) || is_refused(weight) || is_refused(bias) ||
         is_refused(mean) || is_refused(var);
}

// torch's own threads, through its C interface: at::parallel_for is a template that every user compiles with an OpenMP
// of his own, which then has threads of its own.
constexpr Parallel torch_threads{[](std::int64_t count, std::int64_t grain, Parallel::Body body, void* context) {
  TORCH_CHECK(torch_parallel_for(0, count, grain, body, context) == 0,
              "tailor: torch could not run a loop in parallel");
}};

// As kernels that compute the linear take it, or none where they read no such tensors.
std::optional<Linear> whole_linear(const FastCall& call) {
  const bool is_matrix = call.input.dim() == 2;
  const bool rows_are_dense = is_matrix ? call.input.stride(1) == 1 : call.input.is_contiguous();
  if (call.paths->whole.empty() || !rows_are_dense || !is_dense_vector(call.bias) || call.weight.stride(1) != 1)
    return std::nullopt;
  return linear_of(call.input, is_matrix ? call.input.stride(0) : call.weight.size(1), call.weight, call.bias);
}

std::vector<std::int64_t> sizes_of_result(const FastCall& call) {
  std::vector<std::int64_t> sizes = call.input.sizes().vec();
  sizes.back() = call.tail.columns;
  return sizes;
}

// What the tail's kernels need, for as long as the call lasts.
at::Tensor take_workspace(FastCall& call) {
  const std::int64_t bytes = call.paths->kernels->workspace(call.tail);
  if (bytes == 0) return {};
  at::Tensor workspace = at::empty({bytes}, call.input.options().dtype(at::kByte));
  call.tail.norm.workspace = workspace.mutable_data_ptr();
  return workspace;
}

}  // namespace

void point_at(Tail& tail, const TailTensors& tensors) {
  for (std::size_t i = 0; i < max_operands; ++i) tail.vectors[i].data = data_of(tensors.vectors[i]);
  NormArguments& norm = tail.norm;
  norm.weight = data_of(tensors.norm_weight);
  norm.bias = data_of(tensors.norm_bias);
  const auto statistic = [&](const at::Tensor& tensor) {
    // Only with batch statistics are they written.
    return norm.batch_statistics && tensor.defined() ? tensor.mutable_data_ptr() : const_cast<void*>(data_of(tensor));
  };
  norm.mean = statistic(tensors.running_mean);
  norm.var = statistic(tensors.running_var);
}

void* current_stream(c10::Device device) {
  if (device.is_cpu()) return const_cast<Parallel*>(&torch_threads);
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

DevicePaths::DevicePaths(const Chain& chain, Device device)
    : kernels(find_tail(chain.name, device)), whole(chain.name, device) {
  if (kernels == nullptr) return;
  forward.emplace(chain.name, kernels->path);
  if (kernels->backward_path != nullptr) backward.emplace(chain.name, kernels->backward_path);
}

DevicePaths& FastPath::on(Device device) {
  // Not in the constructor: kernels and ops register themselves in no particular order.
  std::call_once(found_, [this] {
    for (const Device each : {Device::cpu, Device::cuda})
      devices_[static_cast<std::size_t>(each)] = std::make_unique<DevicePaths>(chain_, each);
  });
  return *devices_[static_cast<std::size_t>(device)];
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

std::optional<at::Tensor> FastPath::run_whole(FastCall& call) {
  if (writes_what_the_linear_reads(call)) return std::nullopt;
  // Batch statistics are saved for the backward by a tail's own kernel only; and of a vector torch makes a matrix in a way of its own.
  if (call.wants_gradients && (call.tail.norm.batch_statistics || call.input.dim() < 2)) return std::nullopt;
  std::optional<Linear> linear = whole_linear(call);
  if (!linear) return std::nullopt;
  linear->keeps_result = call.wants_gradients;
  call.paths->whole.settle(*linear, call.tail, call.weight);
  WholePath* const taker = call.paths->whole.taker(*linear, call.tail);
  if (taker == nullptr) return std::nullopt;
  at::Tensor y;
  if (call.wants_gradients) {
    y = at::empty({call.tail.rows, call.tail.columns}, call.input.options());
    linear->result = y.mutable_data_ptr();
  }
  at::Tensor out = taker->run(*linear, call.tail, sizes_of_result(call), call.input.options(), call.weight);
  if (!out.defined()) return std::nullopt;
  if (call.wants_gradients) {
    y = differentiable_linear(y, call.input, call.weight);
    TailBackward::attach(TailBackward::prepare(call, y), call, y, out);
  }
  return out;
}

std::optional<at::Tensor> FastPath::run_gathering(FastCall& call, at::Tensor& workspace) {
  Tail& tail = call.tail;
  if (!tail.norm.batch_statistics) return std::nullopt;
  const std::optional<Linear> linear = whole_linear(call);
  if (!linear) return std::nullopt;
  WholePath* const gatherer = call.paths->whole.gatherer(*linear, tail);
  if (gatherer == nullptr) return std::nullopt;
  at::Tensor y = at::empty(sizes_of_result(call), call.input.options());
  tail.norm.gathered_rows = gatherer->gathered_rows();
  workspace = take_workspace(call);
  tail.out = y.mutable_data_ptr();
  gatherer->gather(*linear, tail, y.device());
  return differentiable_linear(y, call.input, call.weight);
}

std::optional<at::Tensor> FastPath::run(const StepArguments* arguments, Norm norm) {
  FastCall call;
  call.chain = &chain_;
  call.norm = norm;
  if (const char* why = prepare(arguments, call)) {
    note_refusal(chain_.name, why);
    return std::nullopt;
  }
  const c10::OptionalDeviceGuard guard(call.input.device());
  if (std::optional<at::Tensor> out = run_whole(call)) return out;
  at::Tensor workspace;
  const std::optional<at::Tensor> gathered = run_gathering(call, workspace);
  // The bias's gradient is a sum that the tail's backward makes on its way; torch need not make it again.
  const bool own_bias = call.wants_gradients && call.bias.defined() && call.bias.requires_grad();
  at::Tensor y = gathered ? *gathered : linear(call.input, call.weight, own_bias ? call.bias.detach() : call.bias);
  if (!y.is_contiguous() || !is_aligned(y) || y.numel() != call.tail.rows * call.tail.columns) {
    note_refusal(chain_.name, "the linear's result is not contiguous, or not aligned");
    return std::nullopt;
  }
  // In place, since nobody else has seen it: unless it is a view, or was written to, as no result of eager's is.
  const bool is_fresh = y.is_inference() || (!y.is_view() && y._version() == 0);
  at::Tensor out = call.wants_gradients || !is_fresh ? at::empty_like(y) : y;
  Tail& tail = call.tail;
  std::shared_ptr<TailBackward> backward;
  if (call.wants_gradients) {
    backward = TailBackward::prepare(call, y);
    tail.norm.saved = backward->saved_statistics();
    point_at(tail, call.tensors);  // some are copies now
  }
  tail.y = y.const_data_ptr();
  tail.out = out.mutable_data_ptr();
  if (!gathered) workspace = take_workspace(call);
  const char* error = call.paths->kernels->forward(tail, current_stream(y.device()));
  TORCH_CHECK(error == nullptr, "tailor::", chain_.name, ": ", error);
  call.paths->forward->count();
  if (backward) TailBackward::attach(std::move(backward), call, y, out);
  return out;
}

}  // namespace tailor
