#include "normalise.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/normalize_ops.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "kept.h"
#include "origins.h"

namespace tailor {
namespace {

// The answer where a node asks whether something is None, or what it is, or denies an answer.
std::optional<bool> known_answer(Node* node, Origins& origins) {
  if (node->kind() == c10::prim::isinstance) {
    const Value* asked = origins.of_own_type(node->input(0));
    if (!asked) return std::nullopt;
    const auto& types = node->tys(c10::attr::types);
    return std::any_of(types.begin(), types.end(), [&](const auto& type) { return asked->type()->isSubtypeOf(*type); });
  }
  if (node->kind() == c10::aten::__not__) {
    const auto denied = origins.truth(node->input());
    return denied ? std::optional(!*denied) : std::nullopt;
  }
  const bool negated = node->kind() == c10::aten::__isnot__;
  if ((!negated && node->kind() != c10::aten::__is__) || !node->input(1)->mustBeNone()) return std::nullopt;
  const auto is_none = origins.is_none(node->input(0));
  return is_none ? std::optional(*is_none != negated) : std::nullopt;
}

// Puts what is in the block in the place of the `If` that it belongs to. Returns the first node of it, or the one behind.
Node* put_in_place_of(Node* choice, Block* chosen) {
  Node* const before = choice->prev();
  while (chosen->nodes().begin() != chosen->nodes().end()) chosen->nodes().begin()->moveBefore(choice);
  for (std::size_t i = 0; i < choice->outputs().size(); ++i)
    choice->output(i)->replaceAllUsesWith(chosen->outputs()[i]);
  Node* const next = before->next() == choice ? choice->next() : before->next();
  choice->destroy();
  return next;
}

// What two branches of one type give has no wider type, and where both give None it is None: whoever reads a file of the graph finds that too.
// Returns whether there was any None.
bool narrow_outputs(Node* choice) {
  bool is_none = false;
  for (std::size_t i = 0; i < choice->outputs().size(); ++i) {
    Value* const output = choice->output(i);
    const Value* const sides[] = {choice->blocks()[0]->outputs()[i], choice->blocks()[1]->outputs()[i]};
    const auto type = c10::unshapedType(sides[0]->type());
    if (*type == *c10::unshapedType(sides[1]->type()) && output->type()->kind() != c10::TypeKind::TensorType)
      output->setType(type);
    if (!output->hasUses() || !sides[0]->mustBeNone() || !sides[1]->mustBeNone()) continue;
    Node* const none = choice->owningGraph()->createNone()->insertAfter(choice);
    output->replaceAllUsesWith(none->output());
    is_none = true;
  }
  return is_none;
}

// `if scale is not None` or `if isinstance(scale, float)` of an argument that a caller in the same graph gave, or left out. In the order
// in which things are made: one answer may lead to another. Returns whether there was any, and with it perhaps work for constant
// propagation.
bool answer_what_is_known(Block* block, Origins& origins) {
  bool answered = false;
  for (Node* node = block->param_node()->next(); node != block->return_node();) {
    if (const auto answer = known_answer(node, origins)) {
      const torch::jit::WithInsertPoint here(node);
      node->output()->replaceAllUsesWith(block->owningGraph()->insertConstant(*answer));
      node = node->next();
      node->prev()->destroy();
      answered = true;
    } else if (const auto truth = node->kind() == c10::prim::If ? origins.truth(node->input()) : std::nullopt) {
      node = put_in_place_of(node, node->blocks()[*truth ? 0 : 1]);
      answered = true;
    } else {
      for (Block* inner : node->blocks()) answered = answer_what_is_known(inner, origins) || answered;
      if (node->kind() == c10::prim::If) answered = narrow_outputs(node) || answered;
      node = node->next();
    }
  }
  return answered;
}

bool answer_what_is_known(Block* top) {
  Origins origins;
  return answer_what_is_known(top, origins);
}

// A tuple, or what a value goes through on its way into one and out again; nothing happens there.
bool is_wrapping(const Node* node) {
  constexpr c10::Symbol kinds[] = {c10::prim::TupleConstruct, c10::prim::TupleUnpack, c10::prim::TupleIndex,
                                   c10::prim::unchecked_cast};
  return std::find(std::begin(kinds), std::end(kinds), node->kind()) != std::end(kinds);
}

// Takes the node away if nobody reads it, and with it what was there for it alone.
void drop_wrapping(Node* node) {
  while (node && !node->hasUses()) {
    Node* const source = node->kind() == c10::prim::TupleConstruct ? nullptr : node->input(0)->node();
    node->destroy();
    node = source && is_wrapping(source) ? source : nullptr;
  }
}

// What `assert y is not None`, `assert isinstance(y, torch.Tensor)` and torch.jit._unwrap_optional(y) leave of a `y` that is known to
// be a tensor: the same value, with the same type. And the cast of an argument that the callee does not look at.
void take_idle_casts_away(Block* top) {
  Origins origins;
  for_each_block(top, [&](Block* block) {
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      Node* node = *it++;
      if (node->kind() != c10::prim::unchecked_cast && node->kind() != c10::aten::_unwrap_optional) continue;
      Value* const before = origins.plain_tensor(node->input());
      const bool is_idle = before && is_plain_tensor(node->output());
      if (is_idle) node->output()->replaceAllUsesWith(before);
      if (is_idle || node->kind() == c10::prim::unchecked_cast) drop_wrapping(node);
    }
  });
}

// What a module returns in a tuple, and its caller takes out again: all of it, or one element, by its index or its name.
void take_tuples_apart(Block* top) {
  Origins origins;
  for_each_block(top, [&](Block* block) {
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      Node* node = *it++;
      if (node->kind() != c10::prim::TupleUnpack && node->kind() != c10::prim::TupleIndex) continue;
      for (Value* taken : node->outputs())
        if (Value* element = origins.put_into_tuple(taken); element && *element->type() == *taken->type())
          taken->replaceAllUsesWith(element);
      drop_wrapping(node);
    }
  });
}

bool is_constant_true(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isBool() && constant->toBool();
}

// What torch.nn's `if self.training: bn_training = True` leaves: the condition itself. torch's executor would see that too, and
// whenever it sees something it drops what nobody reads, a batch norm's statistics with it.
void take_idle_choices_away(Block* top) {
  for_each_block(top, [](Block* block) {
    for (auto node = block->nodes().begin(); node != block->nodes().end(); ++node) {
      if (node->kind() != c10::prim::If || node->outputs().size() != 1) continue;
      const auto blocks = node->blocks();
      const auto is_bare = [](Block* side) { return side->nodes().begin() == side->nodes().end(); };
      if (!is_bare(blocks[0]) || !is_bare(blocks[1]) || !is_constant_true(blocks[0]->outputs()[0]) ||
          !is_constant_false(blocks[1]->outputs()[0]))
        continue;
      node->output()->replaceAllUsesWith(node->input());
      node.destroyCurrent();
    }
  });
}

const c10::Symbol mark = c10::Symbol::attr("cast");

// Casts to a union as what only looks on, marked, and back.
void disguise_casts(Block* top, bool are_disguised) {
  const c10::Symbol from = are_disguised ? c10::prim::profile : c10::prim::unchecked_cast;
  for_each_block(top, [&](Block* block) {
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      Node* node = *it++;
      if (node->kind() != from || node->output()->type()->kind() != c10::TypeKind::UnionType ||
          node->hasAttribute(mark) != are_disguised)
        continue;
      const c10::Symbol to = are_disguised ? c10::prim::unchecked_cast : c10::prim::profile;
      Node* const other = block->owningGraph()->create(to, {node->input()})->insertBefore(node);
      if (!are_disguised) other->i_(mark, 1);
      other->output()->copyMetadata(node->output());
      other->copyMetadata(node);
      node->output()->replaceAllUsesWith(other->output());
      node->destroy();
    }
  });
}

// Of a constant that is cast to a union torch makes a constant of that type, and then finds that there are none.
void propagate_constants(std::shared_ptr<Graph>& graph) {
  disguise_casts(graph->block(), false);
  torch::jit::ConstantPropagationImmutableTypes(graph);  // torch.nn asks `if inplace` of constants
  disguise_casts(graph->block(), true);
}

}  // namespace

void normalise(std::shared_ptr<Graph> graph) {
  take_idle_choices_away(graph->block());
  torch::jit::NormalizeOps(graph);
  keep_unread_effects(graph->block());
  do {
    propagate_constants(graph);
  } while (answer_what_is_known(graph->block()));
  let_go_of_unread_effects(graph->block());
  take_tuples_apart(graph->block());  // after what drops what nobody reads
  take_idle_casts_away(graph->block());
  take_tuples_apart(graph->block());  // of what had another type
  make_orders_constant(graph->block());
}

}  // namespace tailor
