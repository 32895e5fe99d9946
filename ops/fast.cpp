#include "fast.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/stable/c/shim.h>

#include <vector>

#include "backward.h"
#include "linear.h"
#include "plain.h"
#include "refusals.h"

namespace tailor {
namespace {

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

// torch writes the bias where the result is to be, a pass over memory, before it multiplies; a tail adds it in passing. Not in 16
// bits, to which eager rounds the sum, nor where a backward is to read the whole result: the bias may be another by then. Nor to a
// single product, which eager rounds together with it.
bool tail_adds_bias(const FastCall& call) {
  const bool is_rounded_late = call.tail.element == Element::float32 || call.tail.element == Element::float64;
  return call.paths->kernels->adds_bias && is_rounded_late && !call.wants_gradients && call.bias.defined() &&
         call.weight.size(1) > 1 && is_dense_vector(call.bias) && !writes_what_the_linear_reads(call);
}

// The bias that is left for the linear. Its gradient is a sum that the tail's backward makes on its way; torch need not make it again.
at::Tensor bias_of_linear(const FastCall& call) {
  if (call.tail.bias != nullptr || !call.bias.defined()) return {};
  return call.wants_gradients && call.bias.requires_grad() ? call.bias.detach() : call.bias;
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
  if (!gathered && tail_adds_bias(call)) call.tail.bias = data_of(call.bias);
  at::Tensor y = gathered ? *gathered : linear(call.input, call.weight, bias_of_linear(call));
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
