#include "ahead.h"

#include <torch/csrc/jit/ir/ir_views.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>

#include "declared.h"
#include "forks.h"
#include "lines.h"
#include "pass.h"
#include "unwritten.h"

namespace tailor {
namespace {

const c10::Symbol ahead = c10::Symbol::fromQualString("tailor::ahead");
const c10::Symbol untyped = c10::Symbol::fromQualString("tailor::ahead_untyped");
const c10::Symbol held = c10::Symbol::fromQualString("tailor::held");  // what older files have in its place

// Of any type, which only torch's own operators may have; the value lies on the stack already, and stays there.
const torch::jit::RegisterOperators operators(
    {torch::jit::Operator(
         "tailor::ahead(t(a) value) -> (t(a), int)", [](torch::jit::Stack& stack) { torch::jit::push(stack, 0); },
         c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator(
         "tailor::ahead_untyped(Any(a) value) -> (Any(a), int)",
         [](torch::jit::Stack& stack) { torch::jit::push(stack, 0); }, c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator(
         "tailor::held(t(a) value) -> t(a)", [](torch::jit::Stack&) {}, c10::AliasAnalysisKind::FROM_SCHEMA)});

Node* make_ahead(Value* value, const Node* line, c10::Symbol kind = ahead) {
  Node* const node = value->owningGraph()->create(kind, {value}, 2);
  node->output(0)->setType(kind == untyped ? c10::AnyType::get() : value->type());
  node->output(1)->setType(c10::IntType::get());
  node->setSourceRange(line->sourceRange());
  return node;
}

// A loop, or what may have one in it: also a branch that calls whatever is inlined later.
bool may_loop(const Node* node) {
  const auto kind = node->kind();
  if (kind == c10::prim::Loop || kind == c10::prim::CallMethod || kind == c10::prim::CallFunction) return true;
  return std::ranges::any_of(node->blocks(), [](const Block* block) {
    return std::any_of(block->nodes().begin(), block->nodes().end(), may_loop);
  });
}

// Of a tuple in which something may be missing torch finds one type of a loop's variable where it begins to read a file, and another
// afterwards, and freezing takes away a cast that says no more than is known. So what such a variable begins with, and what it ends as,
// and what a branch makes of one, is handed on as something of any type, and a cast says the type again.
bool may_be_found_otherwise(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::TupleType && leaves_open(type);
}

Node* said_again(const Node* own) {
  if (own->kind() != untyped || own->output(0)->uses().size() != 1) return nullptr;
  Node* const next = own->output(0)->uses()[0].user;
  return next->kind() == c10::prim::unchecked_cast ? next : nullptr;
}

// Of something narrower than a loop goes on with torch's printer says the type by itself, and sides are widened (wide_tuples.h).
bool begins_loops_or_ends_sides(const Value* value) {
  return std::ranges::all_of(value->uses(), [](const auto& use) {
    const bool ends_side = use.user->kind() == c10::prim::Return && use.user->owningBlock()->owningNode();
    return ends_side || use.user->kind() == c10::prim::Loop;
  });
}

// The nodes that hand it on, which stand nowhere yet.
std::vector<Node*> hand_on(Value* value, const Node* line, const c10::TypePtr& type) {
  if (!may_be_found_otherwise(type)) return {make_ahead(value, line)};
  Node* const own = make_ahead(value, line, untyped);
  Node* const cast = value->owningGraph()->create(c10::prim::unchecked_cast, {own->output(0)});
  cast->output()->setType(type);
  return {own, cast};
}

// Whether it has one reader just now does not matter: torch makes one of equal readers, and drops others.
void put_results_ahead(Node* node) {
  Node* last = node;
  for (Value* result : node->outputs()) {
    if (!result->hasUses()) continue;
    const auto nodes = hand_on(result, node, result->type());
    result->replaceAllUsesWith(nodes.back()->output(0));
    nodes.front()->replaceInput(0, result);
    for (Node* each : nodes) last = each->insertAfter(last);
  }
}

// `reader` reads it where something of the type goes.
void say_type(Node* reader, std::size_t input, const c10::TypePtr& type, const Node* line) {
  if (!may_be_found_otherwise(type)) return;
  const auto nodes = hand_on(reader->input(input), line, type);
  for (Node* each : nodes) each->insertBefore(reader);
  reader->replaceInput(input, nodes.back()->output(0));
}

void say_what_begins(Node* loop) {
  const torch::jit::LoopView view(loop);
  for (std::size_t i = 0; i < view.carriedInputs().size(); ++i)
    say_type(loop, i + 2, view.bodyCarriedInputs()[i]->type(), loop);
}

void say_what_sides_give(Node* branch) {
  for (Block* side : branch->blocks())
    for (std::size_t i = 0; i < branch->outputs().size(); ++i)
      say_type(side->return_node(), i, branch->output(i)->type(), branch);
}

// What no loop makes in this graph, one may where the graph is inlined. Also what is read first: before it may stand what the op's own
// reader reads.
void put_arguments_ahead(Node* node) {
  for (std::size_t i = 0; i < node->inputs().size(); ++i) {
    Value* value = node->input(i);
    while (Value* const before = before_held(value)) value = before;
    const Node* const made_by = value->node();
    if (made_by->kind() == c10::prim::Constant || made_by->kind() == c10::prim::GetAttr || is_ours(made_by)) continue;
    node->replaceInput(i, make_ahead(node->input(i), node)->insertBefore(node)->output(0));
  }
}

void add_in(Block* block) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* const node = *it++;
    for (Block* inner : node->blocks()) add_in(inner);
    if (is_ours(node)) put_arguments_ahead(node);
    if (node->kind() == c10::prim::Loop) say_what_begins(node);
    if (node->kind() == c10::prim::If) say_what_sides_give(node);
    if (may_loop(node)) put_results_ahead(node);
  }
}

bool is_ahead(const Node* node) { return node->kind() == ahead || node->kind() == untyped; }

bool is_read_as_it_is(const Value* result) {
  return std::ranges::any_of(result->uses(), [](const auto& use) { return !is_ahead(use.user); });
}

}  // namespace

bool has_bare_loop(Block* top) {
  bool found = false;
  for_each_block(top, [&](Block* block) {
    for (const Node* node : block->nodes())
      if (node->kind() == c10::prim::Loop && !is_torchs_own(node))
        found = found || std::ranges::any_of(node->outputs(), is_read_as_it_is);
  });
  for_each_fork(top, [&](Node&, const std::shared_ptr<Graph>& forked) {
    found = found || (has_tailor_op(forked->block()) && has_bare_loop(forked->block()));
  });
  return found;
}

void add_ahead(Block* top) {
  add_in(top);
  for_each_fork(top, [](Node&, const std::shared_ptr<Graph>& forked) { add_ahead(forked->block()); });
}

void drop_ahead(Block* top) {
  for_each_block(top, [](Block* block) {
    for (auto node = block->nodes().begin(); node != block->nodes().end(); ++node) {
      if (!is_ahead(*node) && node->kind() != held) continue;
      Node* const cast = said_again(*node);
      if (cast && (begins_loops_or_ends_sides(cast->output()) || *cast->output()->type() == *node->input()->type())) {
        cast->output()->replaceAllUsesWith(node->output(0));
        cast->destroy();
      }
      node->output(0)->replaceAllUsesWith(node->input());
      node.destroyCurrent();
    }
  });
  for_each_fork(top, [](Node&, const std::shared_ptr<Graph>& forked) { drop_ahead(forked->block()); });
}

}  // namespace tailor
