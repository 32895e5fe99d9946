#include "from_arguments.h"

#include <algorithm>

namespace tailor {

FromArguments::FromArguments(Block* top) {
  for (Value* input : top->inputs()) note(input, !input->type()->cast<c10::ClassType>());
  read(top);
}

// Numbers may come of what is known of a tensor beforehand, such as its rank.
void FromArguments::note(const Value* value, bool is_one) {
  const auto kind = value->type()->kind();
  const bool is_number =
      kind == c10::TypeKind::IntType || kind == c10::TypeKind::FloatType || kind == c10::TypeKind::BoolType;
  if (is_one && !is_number) known_.insert(value);
}

void FromArguments::read(Block* block) {
  for (Node* node : block->nodes()) {
    if (node->kind() == c10::prim::Loop) {
      read_loop(node);
      continue;
    }
    for (Block* inner : node->blocks()) read(inner);
    for (std::size_t i = 0; i < node->outputs().size(); ++i) {
      const auto is_one = [&](const Value* value) { return known_.contains(value); };
      const auto is_one_of = [&](Block* inner) { return i < inner->outputs().size() && is_one(inner->outputs()[i]); };
      const auto inputs = node->inputs();
      const auto blocks = node->blocks();
      note(node->output(i), blocks.empty() ? std::any_of(inputs.begin(), inputs.end(), is_one)
                                           : std::all_of(blocks.begin(), blocks.end(), is_one_of));
    }
  }
}

// What a loop carries is one if it is at first and stays so. Else nothing within is taken for one.
void FromArguments::read_loop(Node* loop) {
  Block* body = loop->blocks()[0];
  const std::size_t carried = loop->outputs().size();
  const auto is_one = [&](std::size_t i) { return known_.contains(loop->input(i + 2)); };
  for (std::size_t i = 0; i < carried; ++i) note(body->inputs()[i + 1], is_one(i));
  read(body);
  bool stays = true;
  for (std::size_t i = 0; i < carried; ++i)
    stays = stays && (known_.contains(body->outputs()[i + 1]) || !known_.contains(body->inputs()[i + 1]));
  if (!stays) forget(body);
  for (std::size_t i = 0; i < carried; ++i) note(loop->output(i), is_one(i) && stays);
}

void FromArguments::forget(Block* top) {
  for_each_block(top, [&](Block* block) {
    for (const Value* input : block->inputs()) known_.erase(input);
    for (const Node* node : block->nodes())
      for (const Value* output : node->outputs()) known_.erase(output);
  });
}

}  // namespace tailor
