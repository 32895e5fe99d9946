#include "kept.h"

#include "effects.h"

namespace tailor {
namespace {

const c10::Symbol mark = c10::Symbol::attr("keeps");

bool does_something(Node* node) {
  if (!node->kind().is_aten() || node->outputs().size() != 1 || !is_tensor(node->output())) return false;
  return writes(node) || node->isNondeterministic();
}

}  // namespace

void keep_unread_effects(Block* top) {
  for_each_block(top, [](Block* block) {
    for (auto node = block->nodes().begin(); node != block->nodes().end(); ++node) {
      if (!does_something(*node)) continue;
      Node* const reader = block->owningGraph()->create(c10::prim::Print, {node->output()}, 0);
      reader->i_(mark, 1);
      reader->insertAfter(*node);
    }
  });
}

void let_go_of_unread_effects(Block* top) {
  for_each_block(top, [](Block* block) {
    for (auto node = block->nodes().begin(); node != block->nodes().end(); ++node)
      if (node->kind() == c10::prim::Print && node->hasAttribute(mark)) node.destroyCurrent();
  });
}

}  // namespace tailor
