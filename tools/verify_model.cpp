// The whole model on the user's inputs: as it was saved, in training and in eval.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>

#include "../passes/objects.h"
#include "compare.h"
#include "failure.h"
#include "verify.h"

namespace tailor::tool {
namespace {

using torch::jit::Module;

struct Mode {
  std::string name;
  std::optional<bool> training;  // none: as saved
};

// As saved, and whichever of training and eval that is not.
std::vector<Mode> modes(const Module& module) {
  std::set<bool> flags;
  for (const auto& inner : module.modules())
    if (inner.hasattr("training") && inner.attr("training").isBool()) flags.insert(inner.attr("training").toBool());
  if (flags.empty()) return {{"as saved", std::nullopt}};  // frozen
  if (flags.size() == 2) return {{"as saved", std::nullopt}, {"in training", true}, {"in eval", false}};
  if (flags.contains(true)) return {{"in training", std::nullopt}, {"in eval", false}};
  return {{"in eval", std::nullopt}, {"in training", true}};
}

template <class Visit>
void each_tensor(const Module& module, Visit visit) {
  for (const auto& [path, object] : objects_in(module))
    for_each_held(*object, [&, &at = path](const Held& held) {
      if (held.value.isTensor() && held.value.toTensor().defined())
        visit(beneath(at, held.place), held.value.toTensor());
    });
}

// torch knows how to save some attributes that it cannot copy, such as a complex number.
Module deep_copy(const Module& module) try { return module.deepcopy(); } catch (const c10::Error&) {
  std::stringstream file;
  module.save(file);
  return torch::jit::load(file);
}

// A copy that a run may write into. Its parameters are leaves, which those of a plain deepcopy are not.
Module copy(const Module& module, std::optional<bool> training, std::optional<at::ScalarType> floating) {
  auto copied = deep_copy(module);
  each_tensor(copied, [&](const std::string&, const at::Tensor& tensor) {
    const bool gradient = tensor.requires_grad();
    tensor.detach_();
    const bool converts = tensor.layout() == at::kStrided || tensor.layout() == at::kSparse;  // in place, as torch can
    if (floating && converts && are_floating(tensor.scalar_type())) tensor.set_data(tensor.to(*floating));
    tensor.requires_grad_(gradient);
  });
  if (training) copied.train(*training);
  return copied;
}

struct Outcome {
  c10::IValue output;
  std::vector<Leaf> outputs, written, gradients;
  std::string error;
};

struct Call {
  const std::vector<c10::IValue>& inputs;
  uint64_t seed;
  bool optimised;  // by torch's executor
  bool gradients = true;
};

Outcome run(const Module& module, const Call& call, std::optional<bool> training,
            std::optional<at::ScalarType> floating = std::nullopt) try {
  const auto& [inputs, seed, optimised, gradients] = call;
  const torch::jit::GraphOptimizerEnabledGuard guard(optimised);
  const at::AutoGradMode with_gradients(gradients);
  at::manual_seed(seed);  // dropout draws the same mask in every run
  auto copied = copy(module, training, floating);

  Outcome outcome;
  std::vector<Leaf> leaves;
  each_tensor(copied, [&](const std::string& name, const at::Tensor& tensor) {
    outcome.written.push_back({name + " after the call", tensor});
    if (tensor.requires_grad()) leaves.push_back({"the gradient of " + name, tensor});
  });
  std::vector<c10::IValue> arguments;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    auto value = copy_as(inputs[i], floating);
    const std::string name = "argument " + std::to_string(i + 1);
    if (value.isTensor() && are_floating(value.toTensor().scalar_type())) {
      leaves.push_back({"the gradient of " + name, value.toTensor().requires_grad_()});
      value = value.toTensor().clone();  // no leaf: the model may write into its argument
    }
    for (auto& leaf : tensors_in(value, name)) outcome.written.push_back({leaf.name + " after the call", leaf.tensor});
    arguments.push_back(value);
  }

  outcome.output = copied(arguments);  // as a user calls it: with the module's own forward hooks
  outcome.outputs = tensors_in(outcome.output, "output");
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  torch::autograd::variable_list roots, above, variables;
  for (const auto& [name, tensor] : outcome.outputs) {
    if (!tensor.defined() || !tensor.requires_grad() || !are_floating(tensor.scalar_type())) continue;
    if (tensor.layout() != at::kStrided || tensor.is_meta())
      continue;  // nothing that randn makes could be its gradient
    roots.push_back(tensor);
    above.push_back(at::randn(tensor.sizes(), generator, at::kFloat).to(tensor.device(), tensor.scalar_type()));
  }
  for (const auto& leaf : leaves) variables.push_back(leaf.tensor);
  if (roots.empty() || variables.empty()) return outcome;
  const auto found = torch::autograd::grad(roots, variables, above, /*retain_graph=*/false, /*create_graph=*/false,
                                           /*allow_unused=*/true);
  for (std::size_t i = 0; i < leaves.size(); ++i) outcome.gradients.push_back({leaves[i].name, found[i]});
  return outcome;
} catch (const std::exception& error) {
  return {.output = {}, .outputs = {}, .written = {}, .gradients = {}, .error = one_line(error)};
}

// The referee is of use where it ran and is near: a model that names dtypes, or draws random numbers by dtype, computes
// something else in float64.
bool useful(const Outcome& exact, const Outcome& eager, at::ScalarType computed) {
  if (!exact.error.empty() || exact.outputs.size() != eager.outputs.size() ||
      exact.gradients.size() != eager.gradients.size() || exact.written.size() != eager.written.size())
    return false;
  for (std::size_t i = 0; i < eager.outputs.size(); ++i) {
    const auto theirs = dense(eager.outputs[i].tensor);
    if (!theirs.defined() || !are_floating(theirs.scalar_type())) continue;
    const auto referee = dense(exact.outputs[i].tensor);
    if (!referee.defined() || referee.sizes() != theirs.sizes()) return false;
    if (difference({"", referee.to(theirs.options()), theirs, {}, false}, {.times = 1, .computed = computed}))
      return false;
  }
  return true;
}

std::optional<std::string> compare(const Outcome& fused, const Outcome& eager, const Outcome& exact) {
  Computed numbers;
  for (const auto* leaves : {&eager.outputs, &eager.written})
    for (const auto& [name, tensor] : *leaves) {
      if (!tensor.defined() || !are_floating(tensor.scalar_type())) continue;
      numbers.dtype = coarser(numbers.dtype, tensor.scalar_type());
      if (leaves == &eager.outputs) numbers.size = std::max(numbers.size, largest(tensor));
    }
  if (auto different = other_shape(fused.output, eager.output, "output", numbers)) return different;
  const bool referee = useful(exact, eager, numbers.dtype);
  // A whole model multiplies errors: a rounding before a relu or a norm decides later digits, and there is no second
  // draw. The factor of a site is too strict here, and a wrong graph is wrong by far more than this one.
  Tolerance tolerance{.times = 8, .ulps = 16, .computed = numbers.dtype};
  const auto all = [&](const std::vector<Leaf>& ours, const std::vector<Leaf>& theirs, const std::vector<Leaf>& best,
                       bool strides) -> std::optional<std::string> {
    if (ours.size() != theirs.size())
      return "there are " + std::to_string(ours.size()) + " tensors to compare, the original has " +
             std::to_string(theirs.size());
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      const Triple value{theirs[i].name, ours[i].tensor, theirs[i].tensor, referee ? best[i].tensor : at::Tensor(),
                         strides};
      if (auto different = difference(value, tolerance)) return different;
    }
    return std::nullopt;
  };
  if (auto different = all(fused.outputs, eager.outputs, exact.outputs, true)) return different;
  if (auto different = all(fused.written, eager.written, exact.written, true)) return different;
  // Measured: of a scale that a norm divides out, 9 times eager's. Its site sees it for what it is (verify_site.cpp).
  tolerance.times = 32;
  for (const auto& gradient : eager.gradients)  // noise where terms cancel, see verify_site.cpp
    if (gradient.tensor.defined()) tolerance.largest = std::max(tolerance.largest, largest(gradient.tensor));
  return all(fused.gradients, eager.gradients, exact.gradients, false);
}

// With what to do about it.
std::string does_not_run(const Module& module, std::string why) {
  if (why.find("can't allocate memory") != std::string::npos)
    return "there is no memory to run the original on these inputs: describe smaller ones";
  while (why.ends_with('.')) why.pop_back();
  const std::string message = "the original does not run on these inputs: " + why;
  const auto forward = module.find_method("forward");
  if (!forward) return message + "; leave out --input and --input-file";
  const auto& arguments = forward->function().getSchema().arguments();
  std::string wanted;
  for (std::size_t i = 1; i < arguments.size(); ++i)  // the first is the module
    wanted += (wanted.empty() ? "" : ", ") + arguments[i].type()->annotation_str() + " " + arguments[i].name();
  return message + "; forward takes (" + printable(wanted) +
         "): describe each with --input, or all in --input-file, or neither where it cannot run here";
}

Verdict verify_call(const Module& original, const Module& fused, Call call) {
  std::string skipped;
  bool first = true;
  for (const auto& [name, training] : modes(original)) {
    const bool as_saved = std::exchange(first, false);
    call.gradients = true;
    auto eager = run(original, call, training);
    auto ours = run(fused, call, training);
    if (!eager.error.empty() && !ours.error.empty()) {  // it may be for those who want no gradients
      const std::string why = eager.error;
      call.gradients = false;
      eager = run(original, call, training);
      ours = run(fused, call, training);
      if (!eager.error.empty() && as_saved) return {false, does_not_run(original, why)};
      if (!eager.error.empty() && !ours.error.empty()) {
        skipped = "not " + name + ", where the original does not run";
        continue;
      }
    }
    if (!ours.error.empty()) return {false, "raises '" + ours.error + "', the original does not, " + name};
    if (!eager.error.empty()) return {false, "runs where the original raises '" + eager.error + "', " + name};
    const auto exact = run(original, call, training, at::kDouble);
    if (auto different = compare(ours, eager, exact)) return {false, *different + ", " + name};
  }
  return {true, skipped};
}

}  // namespace

Verdict verify_model(const Module& original, const Module& fused, const std::vector<c10::IValue>& inputs,
                     uint64_t seed) {
  // Without the optimising executor: it may give other last digits, and fuses what was meant to run unfused. But without it
  // torch keeps a list that a graph makes from call to call, and what is forked runs with it all the same. So who differs
  // is asked once more with it, as a user would run him.
  const Verdict verdict = verify_call(original, fused, {inputs, seed, false});
  if (verdict.ok) return verdict;
  const Verdict optimised = verify_call(original, fused, {inputs, seed, true});
  return optimised.ok ? optimised : verdict;
}

}  // namespace tailor::tool
