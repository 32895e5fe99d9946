#include "declared.h"

#include <algorithm>

#include "calls.h"
#include "forks.h"

namespace tailor {
namespace {

// Whether the type, or that of something in it, is one of several: a Union, Any, an interface.
bool is_vague(const c10::TypePtr& type) {
  constexpr c10::TypeKind vague[] = {c10::TypeKind::AnyType, c10::TypeKind::InterfaceType, c10::TypeKind::UnionType,
                                     c10::TypeKind::NumberType};
  if (std::find(std::begin(vague), std::end(vague), type->kind()) != std::end(vague)) return true;
  if (type->kind() == c10::TypeKind::ClassType) return false;  // its attributes are its own matter
  const auto parts = type->containedTypes();
  return std::any_of(parts.begin(), parts.end(), is_vague);
}

// Whether something that the type holds may be missing.
bool may_hold_none(const c10::TypePtr& type, bool is_held = false) {
  if (type->kind() == c10::TypeKind::ClassType) return false;
  if (type->kind() == c10::TypeKind::OptionalType && is_held) return true;
  const bool holds = type->kind() != c10::TypeKind::OptionalType;
  const auto parts = type->containedTypes();
  return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return may_hold_none(part, holds); });
}

template <class Holds>
bool is_open(const c10::TypePtr& type, const Holds& holds) {
  return is_vague(type) || may_hold_none(type) || (type->kind() == c10::TypeKind::OptionalType && holds());
}

Node* cast_to(const c10::TypePtr& type, Value* value, const Node* call) {
  Node* node = value->owningGraph()->create(c10::prim::unchecked_cast, {value});
  node->output()->setType(type);
  node->setSourceRange(call->sourceRange());
  if (const auto stack = call->callstack()) node->setCallStack(*stack);
  return node;
}

}  // namespace

bool leaves_open(const c10::TypePtr& type) { return is_vague(type) || may_hold_none(type, true); }

bool Declared::has_holder(torch::jit::Function& function) {
  auto* graph_function = torch::jit::tryToGraphFunction(function);
  if (!graph_function) return false;
  if (const auto known = known_.find(&function); known != known_.end()) return known->second;
  known_[&function] = false;  // as long as it is looked into
  return known_[&function] = has_holder(graph_function->graph()->block());
}

bool Declared::has_holder(Block* top) {
  bool found = false;
  const auto look = [&](const Value* value) {
    found = found || may_hold_none(value->type()) || is_vague(value->type());
  };
  for_each_block(top, [&](Block* block) {
    for (const Value* input : block->inputs()) look(input);
    for (const Node* node : block->nodes())
      for (const Value* output : node->outputs()) look(output);
  });
  for_each_fork(top,
                [&](Node&, const std::shared_ptr<Graph>& forked) { found = found || has_holder(forked->block()); });
  if (!found) for_each_known_callee(top, [&](torch::jit::Function& callee) { found = found || has_holder(callee); });
  return found;
}

void Declared::cast(Node* call, torch::jit::GraphFunction& callee) {
  const auto wanted = callee.graph()->inputs();
  const std::size_t first = call->kind() == c10::prim::CallFunction ? 1 : 0;
  for (std::size_t i = 0; i < wanted.size() && i + first < call->inputs().size(); ++i) {
    if (!is_open(wanted[i]->type(), [&] { return has_holder(callee); })) continue;
    Node* cast = cast_to(wanted[i]->type(), call->input(i + first), call)->insertBefore(call);
    call->replaceInput(i + first, cast->output());
  }
  const auto in_top = [&] {
    if (!top_has_holder_) top_has_holder_ = has_holder(top_);
    return *top_has_holder_;
  };
  if (call->outputs().size() != 1 || !is_open(call->output()->type(), in_top)) return;
  Node* cast = cast_to(call->output()->type(), call->output(), call)->insertAfter(call);
  call->output()->replaceAllUsesAfterNodeWith(cast, cast->output());
}

}  // namespace tailor
