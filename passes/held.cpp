#include "held.h"

#include <torch/csrc/jit/runtime/custom_operator.h>

#include <unordered_map>
#include <unordered_set>

#include "forks.h"

namespace tailor {
namespace {

using Values = std::unordered_set<const Value*>;

const c10::Symbol held = c10::Symbol::fromQualString("tailor::held");

// Of any type, which only torch's own operators may have; its argument lies on the stack already, and stays there.
const torch::jit::RegisterOperators operators({torch::jit::Operator(
    "tailor::held(t(a) value) -> t(a)", [](torch::jit::Stack&) {}, c10::AliasAnalysisKind::FROM_SCHEMA)});

bool has_loop(const Node* node) {
  if (node->kind() == c10::prim::Loop) return true;
  for (const Block* block : node->blocks())
    for (const Node* inner : block->nodes())
      if (has_loop(inner)) return true;
  return false;
}

void add_read_inside(Node* node, Values& values) {
  for (Block* top : node->blocks())
    for_each_block(top, [&](Block* block) {
      for (Node* inner : block->nodes())
        for (Value* input : inner->inputs()) values.insert(seen(input));
      for (Value* output : block->outputs()) values.insert(seen(output));
    });
}

// The smaller one into the larger one, so that a row of loops costs no more than its length.
void add(Values& to, Values& from) {
  if (to.size() < from.size()) to.swap(from);
  to.insert(from.begin(), from.end());
}

bool is_read_once(const Node* node) { return node->outputs().size() == 1 && node->output()->uses().size() == 1; }

class Holder {
 public:
  void look(Block* block) {
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      Node* const node = *it++;
      for (Block* inner : node->blocks()) look(inner);
      look(node);
    }
    look(block->return_node());
  }

 private:
  // From the last argument to the first: what is read by loops that may run while the arguments behind are read.
  void look(Node* node) {
    Values later;
    for (std::size_t i = node->inputs().size(); i-- > 0;) {
      Value* const value = node->input(i);
      if (later.contains(seen(value))) hold(node, i);
      if (const auto loops = read_in_.find(value->node()); loops != read_in_.end()) add(later, loops->second);
    }
    if (!is_read_once(node)) return;
    if (has_loop(node)) {
      Values inside;
      add_read_inside(node, inside);
      add(later, inside);
    }
    if (!later.empty()) read_in_.emplace(node, std::move(later));
  }

  static void hold(Node* node, std::size_t i) {
    Value* const value = node->input(i);
    const Node* const made = seen(value)->node();
    if (made->kind() == c10::prim::Constant || made->owningBlock() != node->owningBlock()) return;
    if (node->kind() == c10::prim::CallMethod && i == 0) return;  // freezing asks the graph whose method it is
    Node* const own = node->owningGraph()->create(held, {value})->insertBefore(node);
    own->output()->setType(value->type());
    own->setSourceRange(node->sourceRange());
    node->replaceInput(i, own->output());
  }

  std::unordered_map<const Node*, Values> read_in_;  // of what may run where its result is read
};

}  // namespace

void hold_arguments(Block* top) {
  Holder().look(top);
  for_each_fork(top, [](Node&, const std::shared_ptr<Graph>& forked) { hold_arguments(forked->block()); });
}

void let_go_of_arguments(Block* top) {
  for_each_block(top, [](Block* block) {
    for (auto node = block->nodes().begin(); node != block->nodes().end(); ++node) {
      if (node->kind() != held) continue;
      node->output()->replaceAllUsesWith(node->input());
      node.destroyCurrent();
    }
  });
  for_each_fork(top, [](Node&, const std::shared_ptr<Graph>& forked) { let_go_of_arguments(forked->block()); });
}

}  // namespace tailor
