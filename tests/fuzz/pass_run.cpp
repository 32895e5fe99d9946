#include "pass_run.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <mutex>

#include "../passes/source.h"
#include "passes/ahead.h"
#include "passes/pass.h"
#include "random.h"

namespace tailor::fuzz {
namespace {

using torch::jit::Module;

void take_apart(const c10::IValue& value, std::vector<at::Tensor>& into) {
  if (value.isTensor()) into.push_back(value.toTensor());
  if (value.isTuple())
    for (const auto& element : value.toTupleRef().elements()) take_apart(element, into);
}

std::vector<std::int64_t> shape_of(const Model& model, const Call& call) {
  const std::int64_t in = model.sizes.in, out = model.sizes.out;
  switch (call.input) {
    case Input::row:
      return {1, in};
    case Input::none:
      return {0, in};
    case Input::wide:
      return {call.rows, in + 1};
    case Input::flat:
      return {in};
    case Input::cube:
      return {call.rows, out, in};
    case Input::strided:
      return {in, call.rows};
    default:
      return {call.rows, in};
  }
}

void backward(const std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> roots, gradients;
  for (const at::Tensor& value : values) {
    if (!value.requires_grad()) continue;
    roots.push_back(value);
    at::Tensor ramp = at::empty(value.sizes(), at::kDouble);
    double* data = ramp.mutable_data_ptr<double>();
    for (std::int64_t i = 0; i < ramp.numel(); ++i) data[i] = 0.5 + static_cast<double>(i % 7) * 0.25;
    gradients.push_back(ramp.to(value.scalar_type()));
  }
  if (!roots.empty()) torch::autograd::backward(roots, gradients);
}

// Looks on while calls of tailor::unwritten copy operands, in all threads. One at a time.
class Copies {
 public:
  Copies() : handle_(at::addGlobalCallback(at::RecordFunctionCallback(&note).needsInputs(true))) {}
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  ~Copies() {
    at::removeCallback(handle_);
    all().clear();
  }

  // Whether an original was written to since.
  static bool are_of_written() {
    const std::lock_guard lock(mutex());
    return std::ranges::any_of(all(), [](const Copy& copy) { return copy.original._version() != copy.version; });
  }

 private:
  struct Copy {
    at::Tensor original;
    std::uint32_t version;
  };

  static std::vector<Copy>& all() {
    static std::vector<Copy> copies;
    return copies;
  }
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }

  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& call) {
    if (std::string_view(call.name()) != "tailor::unwritten") return nullptr;
    const auto stack = call.inputs();
    const c10::IValue& value = stack[stack.size() - 2];
    if (!value.isTensor()) return nullptr;
    const at::Tensor original = value.toTensor();
    if (original.storage().is_alias_of(stack.back().toTensor().storage())) {
      const std::lock_guard lock(mutex());
      all().push_back({original, static_cast<std::uint32_t>(original._version())});
    }
    return nullptr;
  }

  at::CallbackHandle handle_;
};

}  // namespace

Graphs graphs_of(const Module& module, const Model& model) {
  Graphs graphs;
  for (const Call& call : model.calls) {
    auto& graph = graphs[call.method];
    if (graph) continue;
    graph = module.get_method(call.method).graph()->copy();
    test::inline_calls(*graph);
  }
  return graphs;
}

Graphs plain_graphs_of(const Module& module, const Model& model) {
  Graphs graphs = graphs_of(module, model);
  add_ahead_where_left_alone(graphs);
  return graphs;
}

void add_ahead_where_left_alone(const Graphs& graphs) {
  for (const auto& [name, graph] : graphs)
    if (!has_tailor_op(graph->block())) add_ahead(graph->block());
}

Side::Side(Module module, const Graphs* graphs, Type type)
    : module_(std::move(module)), type_(type), by_executor_(graphs == nullptr) {
  collect(module_, "");
  if (graphs)
    for (const auto& [name, graph] : *graphs) codes_.emplace(name, torch::jit::Code(graph, name));
}

void Side::collect(const Module& module, const std::string& path) {
  const auto object = module._ivalue();
  const auto& type = object->type();
  for (std::size_t i = 0; i < type->numAttributes(); ++i) {
    const std::string name = path + type->getAttributeName(i);
    const c10::IValue& value = object->getSlot(i);
    if (value.isTensor()) tensors_.push_back({object.get(), i, name});
    if (type->getAttributeName(i) == "training") modes_.push_back({object.get(), i, name});
    if (value.isModule()) collect(value.toModule(), name + ".");
  }
}

std::vector<Side::State> Side::state() const {
  std::vector<State> all;
  all.reserve(tensors_.size());
  for (const Slot& slot : tensors_) all.push_back({slot.name, slot.object->getSlot(slot.index).toTensor()});
  return all;
}

void Side::shake() {
  at::manual_seed(8);
  for (const Slot& slot : tensors_) {
    const at::Tensor tensor = slot.object->getSlot(slot.index).toTensor().detach();
    if (tensor.scalar_type() == scalar_type(type_) && tensor.is_non_overlapping_and_dense())
      tensor.mul_(at::rand_like(tensor).sub_(0.5).mul_(type_ == Type::float64 ? 0x1p-49 : 0x1p-22).add_(1.0));
  }
}

// The values are the model's type's; this side may hold them in a wider one.
at::Tensor Side::input_of(const Model& model, const Call& call) const {
  const std::uint64_t seed = model.seed + (model.draw << 32) + static_cast<std::uint64_t>(call.number);
  at::Tensor x = random_values(seed, "x", shape_of(model, call));
  if (call.input == Input::integers) return x.mul(3).to(at::kLong);
  x = x.to(scalar_type(model.type)).to(scalar_type(type_));
  if (call.input == Input::other_dtype) x = x.to(at::kFloat);
  if (call.input == Input::strided) x = x.t();
  return x.set_requires_grad(call.gradients);
}

int Side::finished(const std::string& method) const {
  const auto found = finished_.find(method);
  return found == finished_.end() ? 0 : found->second;
}

std::vector<at::Tensor> Side::tensors() const {
  std::vector<at::Tensor> all;
  all.reserve(tensors_.size());
  for (const Slot& slot : tensors_) all.push_back(slot.object->getSlot(slot.index).toTensor());
  return all;
}

Outcome Side::call(const Model& model, const Call& call) {
  if (!spoiler_) return run(model, call);
  spoiler_->before(tensors());
  Outcome outcome = run(model, call);
  spoiler_->after(outcome, tensors());
  return outcome;
}

Outcome Side::run(const Model& model, const Call& call) {
  for (const Slot& slot : modes_) slot.object->setSlot(slot.index, call.training);
  for (const Slot& slot : tensors_) slot.object->getSlot(slot.index).toTensor().mutable_grad() = at::Tensor();
  Outcome outcome;
  outcome.input = input_of(model, call);
  const at::AutoGradMode mode(call.gradients);
  at::manual_seed(7);
  std::optional<Copies> copies;
  if (call.gradients) copies.emplace();
  try {
    torch::jit::Stack stack{module_._ivalue(), outcome.input};
    if (by_executor_) {
      torch::jit::Stack arguments{outcome.input};
      take_apart(module_.get_method(call.method)(std::move(arguments)), outcome.values);
    } else {
      torch::jit::InterpreterState(codes_.at(call.method)).run(stack);
      for (const auto& value : stack) take_apart(value, outcome.values);
    }
    ++finished_[call.method];
    if (!call.gradients) return outcome;
    outcome.held = Copies::are_of_written();
    copies.reset();
    outcome.backward = true;
    const at::AutoGradMode on(true);
    backward(outcome.values);
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    outcome.error = outcome.backward ? text.substr(0, text.find('\n')) : test::last_line(text);
  } catch (const std::exception& error) {
    outcome.error = test::last_line(error.what());
  }
  return outcome;
}

}  // namespace tailor::fuzz
