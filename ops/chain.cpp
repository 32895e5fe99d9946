#include "chain.h"

#include <algorithm>
#include <string>

namespace tailor {
namespace {

std::vector<const Chain*>& registry() {
  static std::vector<const Chain*> all;
  return all;
}

}  // namespace

std::string_view to_string(Step::Kind kind) {
  switch (kind) {
    case Step::Kind::linear:
      return "linear";
    case Step::Kind::vector:
      return "vector";
    case Step::Kind::scalar:
      return "scalar";
    case Step::Kind::add:
      return "add";
    case Step::Kind::mul:
      return "mul";
    case Step::Kind::div:
      return "div";
    case Step::Kind::sigmoid:
      return "sigmoid";
    case Step::Kind::swish:
      return "swish";
    case Step::Kind::batch_norm:
      return "batch_norm";
    case Step::Kind::group_norm:
      return "group_norm";
  }
  return "?";
}

void detail::require_line(const Chain& chain) {
  const auto fail = [&](const std::string& why) {
    throw std::logic_error("formula of " + std::string(chain.name) + ": " + why);
  };
  if (chain.steps.size() > Chain::max_steps) fail("more steps than Chain::max_steps");
  int previous = 0;
  int norms = 0;
  std::size_t operands = 0;
  for (int i = 1; i <= chain.last(); ++i) {
    const Step& step = chain.steps[static_cast<std::size_t>(i)];
    operands += step.is_operand() ? 1 : step.is_norm() ? 2 : 0;
    if (step.is_operand()) continue;
    if (step.left != previous && step.right != previous) fail("a step does not read the one before it");
    const auto is_scalar = [&](int operand) {
      return operand >= 0 && chain.steps[static_cast<std::size_t>(operand)].kind == Step::Kind::scalar;
    };
    if (is_scalar(step.left)) fail("a scalar stands left of an operator; write it on the right");
    norms += step.is_norm();
    previous = i;
  }
  if (norms > 1) fail("more than one norm");
  if (operands > Chain::max_operands)
    fail("more operands, a norm's weight and bias among them, than Chain::max_operands");
}

const std::vector<const Chain*>& all_chains() { return registry(); }

const Chain* find_chain(std::string_view name) {
  for (const Chain* chain : registry())
    if (chain->name == name) return chain;
  return nullptr;
}

void add_chain(const Chain& chain) {
  auto& all = registry();
  const auto longer = [](const Chain* a, const Chain* b) { return a->steps.size() > b->steps.size(); };
  all.insert(std::upper_bound(all.begin(), all.end(), &chain, longer), &chain);
}

}  // namespace tailor
