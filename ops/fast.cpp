#include "fast.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/stable/c/shim.h>

#include "refusals.h"

namespace tailor {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;

// Autograd keys sit on every tensor; whether they are at work is a question of its own. Autocast's too.
constexpr DispatchKeySet plain_keys = DispatchKeySet({DispatchKey::CPU, DispatchKey::CUDA, DispatchKey::AutogradCPU,
                                                      DispatchKey::AutogradCUDA, DispatchKey::ADInplaceOrView}) |
                                      c10::autocast_dispatch_keyset;

bool has_only(DispatchKeySet keys, DispatchKeySet allowed) { return (keys.raw_repr() & ~allowed.raw_repr()) == 0; }

// Autocast, tracing, vmap, functorch and modes announce themselves in the thread's keys.
const char* unusual_thread() {
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  if (!has_only(keys.included_, c10::default_included_set)) return "a mode, a transform or a trace is active";
  if (!has_only(c10::default_excluded_set, keys.excluded_)) return "autocast is on";
  return nullptr;
}

bool is_dual(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->_fw_grad(0, tensor).defined(); }

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
  const char* refuse(const at::Tensor& tensor) const {
    if (tensor.scalar_type() != type_) return "its tensors have more than one dtype";
    if (tensor.device() != device_) return "its tensors are on more than one device";
    return refuse_kind(tensor);
  }
  const char* refuse_kind(const at::Tensor& tensor) const {
    if (!has_only(tensor.key_set(), plain_keys)) return "a tensor is no plain dense one";
    if (grad_mode_ && tensor.requires_grad()) return "gradients are wanted";
    if (is_dual(tensor)) return "a tensor carries a forward-mode gradient";
    return nullptr;
  }

 private:
  at::ScalarType type_;
  c10::Device device_;
  bool grad_mode_;
};

// A vector of the formula: one value for each column, or one for all.
const char* take_vector(const at::Tensor& vector, std::int64_t columns, std::int64_t rank, Operand& operand) {
  operand.data = vector.const_data_ptr();
  if (vector.dim() > rank) return "an operand has more dimensions than the linear's result";
  if (vector.numel() == 1) {
    operand.per_column = false;
    return nullptr;
  }
  if (vector.numel() != columns || vector.size(-1) != columns) return "an operand is not one value for each column";
  if (vector.stride(-1) != 1) return "an operand is not contiguous";
  operand.per_column = true;
  return nullptr;
}

const char* take_scalar(const IValue& value, const Tensors& tensors, double& number) {
  if (value.isTensor()) {
    // Elsewhere than on the CPU, reading it would mean to wait for the device.
    const at::Tensor& tensor = value.toTensor();
    if (tensor.dim() != 0 || !tensor.device().is_cpu())
      return "a number is a tensor that is not on the CPU, or has a shape";
    if (const char* why = tensors.refuse_kind(tensor)) return why;
    if (tensor.is_complex()) return "a number is complex";
    number = tensor.item().toDouble();
    return nullptr;
  }
  const at::Scalar scalar = value.toScalar();
  if (scalar.isComplex() || scalar.isSymbolic()) return "a number is complex or symbolic";
  number = scalar.toDouble();
  return nullptr;
}

const char* take_column(const IValue& value, const Tensors& tensors, std::int64_t columns, const at::Tensor** taken) {
  *taken = nullptr;
  if (value.isNone()) return nullptr;
  const at::Tensor& tensor = value.toTensor();
  if (const char* why = tensors.refuse(tensor)) return why;
  if (tensor.dim() != 1 || tensor.size(0) != columns) return "a parameter of the norm does not fit the columns";
  if (columns > 1 && tensor.stride(0) != 1) return "a parameter of the norm is not contiguous";
  *taken = &tensor;
  return nullptr;
}

const void* data_of(const at::Tensor* tensor) { return tensor == nullptr ? nullptr : tensor->const_data_ptr(); }
void* writable_data_of(const at::Tensor* tensor) { return tensor == nullptr ? nullptr : tensor->mutable_data_ptr(); }

const char* take_eps(double eps, NormArguments& norm) {
  norm.eps = eps;
  // 1 / sqrt(0) and the root of a negative number are eager's to answer.
  return eps > 0 ? nullptr : "eps is not positive";
}

const char* take_group_norm(const IValue* argument, const Tensors& tensors, Tail& tail) {
  const at::Tensor* weight;
  const at::Tensor* bias;
  tail.norm.groups = argument[0].toInt();
  if (tail.norm.groups < 1 || tail.columns % tail.norm.groups != 0) return "the groups do not divide the columns";
  if (const char* why = take_column(argument[1], tensors, tail.columns, &weight)) return why;
  if (const char* why = take_column(argument[2], tensors, tail.columns, &bias)) return why;
  tail.norm.weight = data_of(weight);
  tail.norm.bias = data_of(bias);
  return take_eps(argument[3].toDouble(), tail.norm);
}

bool shares_memory(const at::Tensor* a, const at::Tensor* b) {
  return a != nullptr && b != nullptr && a->storage().is_alias_of(b->storage());
}

const char* take_batch_norm(const IValue* argument, Norm kind, const Tensors& tensors, Tail& tail) {
  std::array<const at::Tensor*, 4> columns;  // weight, bias, mean, var
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (const char* why = take_column(argument[i], tensors, tail.columns, &columns[i])) return why;
  const auto [weight, bias, mean, var] = columns;
  NormArguments& norm = tail.norm;
  norm.weight = data_of(weight);
  norm.bias = data_of(bias);
  const bool training = kind == Norm::as_called && argument[4].toBool();
  const IValue* eps = argument + (kind == Norm::as_called ? 6 : 4);
  if ((mean == nullptr) != (var == nullptr)) return "one of the running statistics is missing";
  if (training) {
    if (tail.rows < 2) return "batch statistics need two rows";
    // They are written while others read their own: where that is the same memory, the order is eager's.
    for (const at::Tensor* other : {weight, bias, var})
      if (shares_memory(mean, other)) return "running statistics share memory with another tensor";
    for (const at::Tensor* other : {weight, bias})
      if (shares_memory(var, other)) return "running statistics share memory with another tensor";
    norm.batch_statistics = true;
    norm.momentum = argument[5].toDouble();
    norm.mean = writable_data_of(mean);
    norm.var = writable_data_of(var);
  } else {
    if (mean == nullptr) return "there are no running statistics";
    norm.mean = const_cast<void*>(data_of(mean));  // only read
    norm.var = const_cast<void*>(data_of(var));
  }
  return take_eps(eps->toDouble(), norm);
}

// Whether a vector of the formula is one of the running statistics: a kernel may read it after they have been updated, or
// before, and only eager knows which.
bool writes_a_vector(const Chain& chain, const StepArguments* arguments) {
  for (std::size_t norm = 0; norm < chain.steps.size(); ++norm) {
    if (chain.steps[norm].kind != Step::Kind::batch_norm) continue;
    for (std::size_t i = 0; i < chain.steps.size(); ++i) {
      if (chain.steps[i].kind != Step::Kind::vector) continue;
      for (const int statistic : {2, 3}) {
        const IValue& written = arguments[norm].first[statistic];
        if (written.isTensor() && shares_memory(&written.toTensor(), &arguments[i].first->toTensor())) return true;
      }
    }
  }
  return false;
}

// torch's own threads, through its C interface: at::parallel_for is a template that every user compiles with an OpenMP
// of his own, which then has threads of its own.
constexpr Parallel torch_threads{[](std::int64_t count, std::int64_t grain, Parallel::Body body, void* context) {
  TORCH_CHECK(torch_parallel_for(0, count, grain, body, context) == 0,
              "tailor: torch could not run a loop in parallel");
}};

void* current_stream(c10::Device device) {
  if (device.is_cpu()) return const_cast<Parallel*>(&torch_threads);
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

}  // namespace

FastPath::FastPath(const Chain& chain) : chain_(chain) {}

const FastPath::OnDevice& FastPath::on(Device device) {
  // Not in the constructor: kernels and ops register themselves in no particular order.
  std::call_once(found_, [this] {
    for (const Device each : {Device::cpu, Device::cuda}) {
      OnDevice& here = devices_[static_cast<std::size_t>(each)];
      here.kernels = find_tail(chain_.name, each);
      if (here.kernels != nullptr) here.counter = std::make_unique<CallCounter>(chain_.name, here.kernels->path);
    }
  });
  return devices_[static_cast<std::size_t>(device)];
}

const char* FastPath::prepare(const StepArguments* arguments, Norm norm, FastCall& call) {
  const IValue* linear = arguments[0].first;
  call.input = linear[0].toTensor();
  call.weight = linear[1].toTensor();
  if (!call.input.is_cpu() && !call.input.is_cuda()) return "there are kernels for the CPU and for CUDA only";
  const OnDevice& here = on(call.input.is_cpu() ? Device::cpu : Device::cuda);
  if (here.kernels == nullptr) return "there is no kernel for this chain and device";
  call.kernels = here.kernels;
  call.counter = here.counter.get();
  if (const char* why = unusual_thread()) return why;

  const Tensors tensors(call.input);
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
    if (const char* why = tensors.refuse(*call.bias)) return why;
    if (call.bias->dim() != 1 || call.bias->size(0) != tail.columns) return "the bias does not fit";
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
      const at::Tensor& vector = argument->toTensor();
      why = tensors.refuse(vector);
      if (why == nullptr) why = take_vector(vector, tail.columns, call.input.dim(), tail.vectors[vectors++]);
    } else if (step.kind == Step::Kind::scalar) {
      if (scalars == max_operands) return "it has more numbers than a kernel takes";
      why = take_scalar(*argument, tensors, tail.scalars[scalars++]);
    } else if (step.kind == Step::Kind::batch_norm) {
      why = take_batch_norm(argument, norm, tensors, tail);
    } else if (step.kind == Step::Kind::group_norm) {
      why = take_group_norm(argument, tensors, tail);
    }
    if (why != nullptr) return why;
  }
  if (tail.norm.batch_statistics && writes_a_vector(chain_, arguments)) return "running statistics are also an operand";
  return here.kernels->refuses(tail);
}

std::optional<at::Tensor> FastPath::run(const StepArguments* arguments, Norm norm) {
  FastCall call;
  if (const char* why = prepare(arguments, norm, call)) {
    note_refusal(chain_.name, why);
    return std::nullopt;
  }
  const c10::OptionalDeviceGuard guard(call.input.device());
  at::Tensor y = at::linear(call.input, call.weight, call.bias);
  if (!y.is_contiguous() || y.numel() != call.tail.rows * call.tail.columns) {
    note_refusal(chain_.name, "the linear's result is not contiguous");
    return std::nullopt;
  }
  at::Tensor workspace;
  if (const std::int64_t bytes = call.kernels->workspace(call.tail)) {
    workspace = at::empty({bytes}, y.options().dtype(at::kByte));
    call.tail.norm.workspace = workspace.mutable_data_ptr();
  }
  call.tail.y = call.tail.out = y.mutable_data_ptr();  // in place: nobody else has seen it
  const char* error = call.kernels->forward(call.tail, current_stream(y.device()));
  TORCH_CHECK(error == nullptr, "tailor::", chain_.name, ": ", error);
  call.counter->count();
  return y;
}

}  // namespace tailor
