// One site by itself. What is real and what is sampled: an input of the chain that is an attribute or a constant is taken
// as it is, so that the weights of the file are the ones that are checked. `fill` below says what the others get.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <optional>

#include "../passes/objects.h"
#include "compare.h"
#include "inputs.h"
#include "terms.h"
#include "verify.h"

namespace tailor::tool {
namespace {

using torch::jit::Graph;
using torch::jit::Module;

// Rows of a sampled input: more than one vector register, no multiple of a tile, and few enough for a weight of
// 8192 x 8192 to take seconds.
constexpr int64_t batch = 33;

// The value of an input, where the module or its graph knows it.
std::optional<c10::IValue> known(const Module& module, const Origin& origin) {
  if (origin.constant) return origin.constant;
  return origin.attribute.empty() ? std::nullopt : held_at(*module._ivalue(), origin.attribute);
}

// The sizes that the sampled inputs must have.
struct Sizes {
  int64_t in, out;
  at::TensorOptions options;
};

std::optional<Sizes> sizes(const Specimen& specimen, const std::vector<std::optional<c10::IValue>>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (specimen.inputs[i].argument != "weight" || !values[i] || !values[i]->isTensor()) continue;
    const auto& weight = values[i]->toTensor();
    if (!weight.defined() || weight.dim() != 2) continue;
    return Sizes{weight.size(1), weight.size(0), weight.options()};
  }
  // The model computes its weight. What is known of the columns tells their number, that of the rows is free.
  Sizes sizes{40, 0, at::TensorOptions().dtype(at::kFloat)};
  int64_t groups = 1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) continue;
    if (values[i]->isTensor() && values[i]->toTensor().defined()) {
      const auto& tensor = values[i]->toTensor();
      if (!at::isFloatingType(tensor.scalar_type())) continue;
      sizes.options = tensor.options();
      if (tensor.dim() == 1) sizes.out = std::max(sizes.out, tensor.size(0));
    } else if (specimen.inputs[i].argument == "num_groups" && values[i]->isInt()) {
      groups = std::min<int64_t>(values[i]->toInt(), 1 << 20);
    }
  }
  if (sizes.out < 2) sizes.out = 24 * std::max<int64_t>(groups, 1);
  constexpr int64_t most = 1 << 20;  // a file may name any number, and the weight is drawn
  return sizes.out <= most ? std::optional(sizes) : std::nullopt;
}

// A value for an input that only a run of the model would know: it was computed, or is an argument of the method.
// Sizes are those of the usual model: per channel. Positive where eager divides by it or takes its root; away from 0
// and 1 where these would hide an operand that is not read.
std::optional<c10::IValue> fill(const Origin& origin, const c10::TypePtr& type, const Sizes& sizes,
                                const at::Generator& generator) {
  const auto& name = origin.argument;
  const auto normal = [&](at::IntArrayRef shape) {
    return at::randn(shape, generator, at::kFloat).to(sizes.options.device(), sizes.options.dtype().toScalarType());
  };
  const auto positive = [&](at::IntArrayRef shape) { return normal(shape).abs().add(0.5); };
  const bool tensor = type->isSubtypeOf(*c10::OptionalType::create(c10::TensorType::get()));

  if (name == "input") return normal({batch, sizes.in});
  if (name == "weight") return normal({sizes.out, sizes.in});
  if (name == "bias" || name == "scale" || name == "addend" || name == "norm_bias" || name == "running_mean")
    return tensor ? c10::IValue(normal({sizes.out})) : c10::IValue(0.75);
  if (name == "norm_weight" || name == "running_var") return positive({sizes.out});
  if (name == "factor" || name == "divisor") {
    if (tensor) return at::full({}, 1.75, sizes.options);
    return type->kind() == c10::TypeKind::IntType ? c10::IValue(3) : c10::IValue(1.75);
  }
  if (name == "training" || name == "cudnn_enabled") return c10::IValue(true);
  if (name == "momentum") return c10::IValue(0.1);
  if (name == "eps") return c10::IValue(1e-5);
  if (name == "num_groups") {
    int64_t groups = 1;  // at least two channels each
    for (int64_t n = 2; n <= 32 && 2 * n <= sizes.out; ++n)
      if (sizes.out % n == 0) groups = n;
    return c10::IValue(groups);
  }
  return std::nullopt;
}

// What a run leaves: the output; those inputs that it wrote to; for each input its gradient; where the run is a referee, the largest value
// that is computed on the way, the largest that a norm subtracts a mean from, scaled, and for each input the size of what its gradient is added up from. Or how it ended.
struct Outcome {
  at::Tensor output;
  std::vector<at::Tensor> written, gradients;
  double largest = 0, in_front_of_norms = 0;
  std::vector<double> terms;
  std::string error;
};

// A run in another dtype, and whether it is the referee.
struct As {
  at::ScalarType floating;
  bool referee;
};

bool statistic(const Origin& origin) { return origin.argument == "running_mean" || origin.argument == "running_var"; }

// Statistics are written and constants stay: nothing asks for their gradients.
bool learned(const Origin& origin, const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && at::isFloatingType(value.toTensor().scalar_type()) &&
         !origin.constant && !statistic(origin);
}

Outcome run(const std::shared_ptr<Graph>& graph, const Specimen& specimen, const std::vector<c10::IValue>& values,
            std::optional<As> as, uint64_t seed, bool gradients) try {
  auto copy = graph->copy();
  const auto floating = as ? std::optional(as->floating) : std::nullopt;
  if (floating) {
    for (auto* node : copy->nodes())
      if (node->kind() == c10::prim::Constant && node->hasAttribute(c10::attr::value) &&
          node->kindOf(c10::attr::value) == torch::jit::AttributeKind::t)
        node->t_(c10::attr::value, copy_as(node->t(c10::attr::value), floating).toTensor());
  }
  Way way;
  if (as && as->referee)  // what is computed on the way comes out too
    for (auto* node : copy->nodes())
      for (auto* value : node->outputs())
        if (value->type()->isSubtypeOf(*c10::TensorType::get())) {
          copy->registerOutput(value);
          way.values.push_back(value);
        }
  at::AutoGradMode with_gradients(gradients);
  torch::jit::Stack stack;
  Outcome outcome;
  std::vector<at::Tensor> inputs;
  std::vector<int64_t> versions;
  std::vector<std::size_t> leaves;
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto value = copy_as(values[i], floating);
    const bool leaf = learned(specimen.inputs[i], value);
    if (leaf) value.toTensor().requires_grad_();
    inputs.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
    versions.push_back(inputs.back().defined() ? inputs.back()._version() : 0);
    if (leaf) leaves.push_back(i);
    stack.push_back(value);
  }
  const torch::jit::Stack ran_on = stack;
  // The plain interpreter: no profiling, no passes, so that what runs is the graph that is asked about.
  torch::jit::InterpreterState(torch::jit::Code(copy, specimen.site.rule)).run(stack);
  outcome.output = stack.at(0).toTensor();
  for (std::size_t i = 1; i < stack.size(); ++i) way.tensors.push_back(stack[i].toTensor());
  way.value_of = [&](torch::jit::Value* value) {
    const auto arguments = copy->inputs();
    const auto place = [value](const auto& among) {
      return static_cast<std::size_t>(std::find(among.begin(), among.end(), value) - among.begin());
    };
    if (place(arguments) < arguments.size()) return ran_on[place(arguments)];
    if (place(way.values) < way.values.size()) return c10::IValue(way.tensors[place(way.values)]);
    return torch::jit::toIValue(value).value_or(c10::IValue());
  };
  for (const auto& tensor : way.tensors) outcome.largest = std::max(outcome.largest, largest(tensor));
  outcome.in_front_of_norms = size_in_front_of_norms(way);
  // Statistics count as written always: eager's kernels write them without a new version.
  for (std::size_t i = 0; i < values.size(); ++i)
    outcome.written.push_back(
        inputs[i].defined() && (statistic(specimen.inputs[i]) || inputs[i]._version() != versions[i]) ? inputs[i]
                                                                                                      : at::Tensor());

  outcome.gradients.resize(values.size());
  outcome.terms.resize(values.size());
  if (outcome.output.requires_grad()) {
    // One seed, one gradient of the output in all three runs.
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    const auto above = at::randn(outcome.output.sizes(), generator, at::kFloat)
                           .to(outcome.output.device(), outcome.output.scalar_type());
    torch::autograd::variable_list variables;
    for (auto i : leaves) variables.push_back(inputs[i]);
    const bool again = as && as->referee;
    const auto found = torch::autograd::grad({outcome.output}, variables, {above}, /*retain_graph=*/again,
                                             /*create_graph=*/false, /*allow_unused=*/true);
    for (std::size_t i = 0; i < leaves.size(); ++i) outcome.gradients[leaves[i]] = found[i];
    if (again) {
      const auto sizes = sizes_of_terms(way, outcome.output, above, variables, generator);
      for (std::size_t i = 0; i < leaves.size(); ++i) outcome.terms[leaves[i]] = sizes[i];
    }
  }
  outcome.output = outcome.output.detach();  // lets go of the graph and what it saved
  return outcome;
} catch (const std::exception& error) {
  return {.output = {},
          .written = {},
          .gradients = {},
          .largest = 0,
          .in_front_of_norms = 0,
          .terms = {},
          .error = last_line(error.what())};
}

// What was computed on the way says how large an error must be to mean anything: where a norm subtracts a mean, or
// statistics add up values that cancel, the rounding errors of the larger numbers are left. So this is coarse, and tells
// an op that drops digits, or goes wrong in this dtype only; a constant that is a little off is for float64 to tell
// (`check`). `slack` is a factor on what is allowed.
std::optional<std::string> compare(const Specimen& specimen, const Outcome& fused, const Outcome& eager,
                                   const Outcome& exact, double slack = 1) {
  const Tolerance values{.times = 4 * slack, .ulps = 8 * slack, .largest = exact.largest};
  Tolerance results = values;
  results.largest = std::max(results.largest, exact.in_front_of_norms);
  if (auto different = difference({"output", fused.output, eager.output, exact.output}, results)) return different;
  // Gradients are long sums, some of them a single number, and terms may cancel: the gradient of a bias before a batch
  // norm is exactly zero, and what is left of it is the rounding of its terms. The site's largest gradient is a measure, too.
  // And through a norm each comes with the digits that the subtraction of a mean has left, where that is far above what it leaves.
  Tolerance sums{.times = 4 * slack, .ulps = 16 * slack};
  for (const auto& gradient : exact.gradients)
    if (gradient.defined()) sums.largest = std::max(sums.largest, largest(gradient));
  constexpr double far = 64;
  sums.largest *= std::max(exact.in_front_of_norms / far, 1.0);
  for (std::size_t i = 0; i < specimen.inputs.size(); ++i) {
    const auto& name = specimen.inputs[i].argument;
    if (fused.written[i].defined() != eager.written[i].defined())
      return name +
             (eager.written[i].defined() ? " is not written to, as eager does" : " is written to, unlike in eager");
    if (auto different =
            difference({name + " after the call", fused.written[i], eager.written[i], exact.written[i]}, values))
      return different;
    Tolerance terms = sums;
    terms.largest = std::max(terms.largest, exact.terms[i]);
    if (auto different = difference({.name = "the gradient of " + name,
                                     .fused = fused.gradients[i],
                                     .eager = eager.gradients[i],
                                     .exact = exact.gradients[i],
                                     .strides = false},
                                    terms))
      return different;
  }
  return std::nullopt;
}

// What verify_site says of a site, and whether it may be bad luck.
struct Judgement : Verdict {
  bool luck = false;
};

// Whether the op is what runs, and not the author's own spelling.
bool is_chosen(const Specimen& specimen, const std::vector<c10::IValue>& values, bool gradients) {
  if (!specimen.guard) return true;
  at::AutoGradMode with_gradients(gradients);
  torch::jit::Stack stack = values;
  torch::jit::InterpreterState(torch::jit::Code(specimen.guard, specimen.site.rule)).run(stack);
  return stack.at(0).toBool();
}

// One setting of `training`.
Judgement check(const Specimen& specimen, const std::vector<c10::IValue>& values, uint64_t seed, bool gradients) {
  if (!is_chosen(specimen, values, gradients)) return {{true, "the author's own spelling runs on sampled inputs"}};
  const auto eager = run(specimen.before, specimen, values, std::nullopt, seed, gradients);
  const auto fused = run(specimen.after, specimen, values, std::nullopt, seed, gradients);
  if (!eager.error.empty() && !fused.error.empty()) {  // it may be for those who want no gradients
    if (gradients) return check(specimen, values, seed, false);
    return {{true, "sampled inputs do not fit: " + eager.error}};
  }
  if (!fused.error.empty()) return {{false, "raises '" + fused.error + "', eager does not"}};
  if (!eager.error.empty()) return {{false, "runs where eager raises '" + eager.error + "'"}};
  auto exact = run(specimen.before, specimen, values, As{at::kDouble, /*referee=*/true}, seed, gradients);
  if (exact.error.empty()) {
    // In float64 the two agree in all digits that count, and what was rewritten wrongly shows in any dtype.
    const auto twin = run(specimen.after, specimen, values, As{at::kDouble, /*referee=*/false}, seed, gradients);
    const bool ran = twin.error.empty();  // not where it names a dtype
    if (const auto different = ran ? compare(specimen, twin, exact, exact) : std::nullopt)
      return {{false, *different + ", in float64"}};
  } else {  // no referee, such as where the user's nodes name a dtype: the two check each other
    exact.written.resize(values.size());
    exact.gradients.resize(values.size());
    exact.terms.resize(values.size());
  }
  const auto different = compare(specimen, fused, eager, exact);
  constexpr double luck = 8;  // nobody misses by more for want of it
  return {{!different, different.value_or("")}, different && !compare(specimen, fused, eager, exact, luck)};
}

// One draw of what is sampled.
Judgement judge(const Module& original, const Specimen& specimen, uint64_t seed) {
  std::vector<std::optional<c10::IValue>> found;
  for (const auto& origin : specimen.inputs) found.push_back(known(original, origin));
  const auto shape = sizes(specimen, found);
  if (!shape) return {{true, "its weight is computed"}};

  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<c10::IValue> values;
  std::optional<std::size_t> training;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& origin = specimen.inputs[i];
    if (!found[i]) found[i] = fill(origin, specimen.before->inputs()[i]->type(), *shape, generator);
    if (!found[i]) return {{true, "nothing is known about its operand '" + origin.argument + "'"}};
    values.push_back(*found[i]);
    if (origin.argument == "training" && !origin.constant) training = i;
  }

  bool ran = false;
  std::string why_not;
  for (const bool train : {false, true}) {
    if (training) values[*training] = train;
    auto verdict = check(specimen, values, seed, !specimen.inference_only);
    if (!verdict.ok) {
      if (training) verdict.message += train ? ", in training" : ", in eval";
      return verdict;
    }
    if (verdict.message.empty())
      ran = true;
    else
      why_not = verdict.message;
    if (!training) break;
  }
  return {{true, ran ? "" : why_not}};
}

}  // namespace

// One draw's largest error is luck: eager's may be a quarter of what it is in another draw, and the fused op's four times
// as large. Of a good site one draw in some thousands misses by a little; so what misses by a little is drawn again, and
// is wrong if it misses each time. A defect misses each time, or by much.
Verdict verify_site(const Module& original, const Specimen& specimen, uint64_t seed) {
  constexpr uint64_t draws = 3;
  Judgement judgement = judge(original, specimen, seed);
  for (uint64_t draw = 1; judgement.luck && draw < draws; ++draw)
    judgement = judge(original, specimen, seed + (draw << 32));  // a seed of no other site
  return judgement;
}

}  // namespace tailor::tool
