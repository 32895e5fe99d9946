#include "kept.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include "effects.h"

namespace tailor {
namespace {

const c10::Symbol mark = c10::Symbol::attr("keeps");

// Of random numbers: an LSTM with dropout among them, which the graph itself does not know to.
bool draws(const Node* node) {
  if (node->isNondeterministic()) return true;
  const auto* schema = node->maybeSchema();
  const auto op = schema ? c10::Dispatcher::singleton().findSchema(schema->operator_name()) : std::nullopt;
  return op && op->hasTag(at::Tag::nondeterministic_seeded);
}

bool does_something(Node* node) {
  if (!node->kind().is_aten() || node->outputs().empty() || !is_tensor(node->outputs()[0])) return false;
  return writes(node) || draws(node);
}

}  // namespace

void keep_unread_effects(Block* top) {
  for_each_block(top, [](Block* block) {
    for (auto node = block->nodes().begin(); node != block->nodes().end(); ++node) {
      if (!does_something(*node)) continue;
      Node* const reader = block->owningGraph()->create(c10::prim::Print, {node->outputs()[0]}, 0);
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
