#include "unwritten.h"

#include <algorithm>

#include "rewrite.h"

namespace tailor {

Value* before_held(Value* value) {
  Node* node = value->node();
  if (is_tailor(node, "unwritten")) return node->input(0);
  if (node->kind() != c10::prim::If) return nullptr;
  Value* const as_it_is = seen(node->blocks()[1]->outputs()[value->offset()]);
  Value* held = seen(node->blocks()[0]->outputs()[value->offset()]);
  if (!is_tailor(held->node(), "unwritten")) return nullptr;
  while (held != as_it_is && (is_tailor(held->node(), "unwritten") || is_tailor(held->node(), "ahead")))
    held = seen(held->node()->input(0));
  return held == as_it_is ? held : nullptr;
}

bool holds_unwritten(Node* node) {
  return !node->outputs().empty() && std::ranges::all_of(node->outputs(), before_held);
}

bool drop_unwritten(Block* block) {
  bool dropped = false;
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* node = *it++;
    if (!holds_unwritten(node)) {
      for (Block* inner : node->blocks()) dropped = drop_unwritten(inner) || dropped;
      continue;
    }
    for (Value* output : node->outputs()) output->replaceAllUsesWith(before_held(output));
    destroy_if_unused(node);
    dropped = true;
  }
  return dropped;
}

}  // namespace tailor
