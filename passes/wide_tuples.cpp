#include "wide_tuples.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir_views.h>

#include <algorithm>
#include <optional>

#include "declared.h"

namespace tailor {
namespace {

using torch::jit::WithInsertPoint;

// An author's own class of tuples says itself what is in it.
c10::TupleTypePtr open_tuple(const c10::TypePtr& type) {
  auto tuple = type->cast<c10::TupleType>();
  return tuple && !tuple->name() && leaves_open(type) ? tuple : nullptr;
}

Value* widened(Value* value, const c10::TypePtr& wanted, Node* before);

Value* made_anew(const std::vector<Value*>& parts, const c10::TupleTypePtr& wanted, Node* before) {
  std::vector<Value*> wide;
  for (std::size_t i = 0; i < parts.size(); ++i) wide.push_back(widened(parts[i], wanted->elements()[i], before));
  Node* const tuple = before->owningGraph()->createTuple(wide)->insertBefore(before);
  return tuple->output()->setType(wanted);
}

// What was put into the tuple; nothing where that is not known.
std::optional<std::vector<Value*>> parts_of(Value* tuple, Node* before) {
  if (tuple->node()->kind() == c10::prim::TupleConstruct) return tuple->node()->inputs().vec();
  const auto constant = torch::jit::toIValue(tuple);
  if (!constant || !constant->isTuple()) return std::nullopt;
  const WithInsertPoint here(before);
  std::vector<Value*> parts;
  for (const auto& part : constant->toTupleRef().elements())
    parts.push_back(before->owningGraph()->insertConstant(part));
  return parts;
}

// What torch may make a constant of wherever it reads the file, casts and all: a constant, or what becomes one once it is cast to one of
// several types, which the pass leaves to torch (normalise.cpp). Null for anything else.
Value* folded(Value* value) {
  const bool is_union = value->type()->kind() == c10::TypeKind::UnionType;
  Value* origin = value;
  while (origin->node()->kind() == c10::prim::unchecked_cast) origin = origin->node()->input();
  if (origin->node()->kind() == c10::prim::Constant) return origin;
  return origin != value && is_union ? value : nullptr;
}

// A number that is cast torch makes a plain number again wherever it reads the file, and it would be one in the next; what comes out of a
// list it leaves alone.
Value* out_of_a_list(Value* constant, const c10::TypePtr& wanted, Node* before) {
  Graph& graph = *before->owningGraph();
  const WithInsertPoint here(before);
  Value* const list = graph.insertNode(graph.createList(wanted, {constant}))->output();
  Node* const item = graph.insertNode(graph.create(c10::aten::__getitem__, {list, graph.insertConstant(0)}));
  return item->output()->setType(wanted);
}

// `value` as something that a reader of the file takes for `wanted`.
Value* widened(Value* value, const c10::TypePtr& wanted, Node* before) {
  if (!leaves_open(wanted)) return value;
  if (const auto tuple = open_tuple(wanted))
    if (const auto parts = parts_of(value, before)) return made_anew(*parts, tuple, before);
  if (Value* constant = folded(value)) return out_of_a_list(constant, wanted, before);
  if (*value->type() == *wanted) return value;
  Node* const cast = before->owningGraph()->create(c10::prim::unchecked_cast, {value})->insertBefore(before);
  return cast->output()->setType(wanted);
}

// Whether a reader would find the type of itself.
bool is_wide(Value* value, const c10::TypePtr& wanted) {
  if (!leaves_open(wanted)) return true;
  if (folded(value) || *value->type() != *wanted) return false;
  const auto tuple = open_tuple(wanted);
  if (!tuple || value->node()->kind() != c10::prim::TupleConstruct) return true;
  const auto parts = value->node()->inputs();
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (!is_wide(parts[i], tuple->elements()[i])) return false;
  return true;
}

// The type that a reader of the file finds.
c10::TypePtr found_type(Value* value) {
  if (const Value* const origin = folded(value)) return origin->type();
  const auto tuple = open_tuple(value->type());
  if (!tuple || value->node()->kind() != c10::prim::TupleConstruct) return value->type();
  std::vector<c10::TypePtr> parts;
  for (Value* part : value->node()->inputs()) parts.push_back(found_type(part));
  return c10::TupleType::create(parts);
}

// A loop's variable has its type said where it begins as something of another type, also in what freezing makes of the graph.
bool begins_as_another(Node* loop, std::size_t input, const c10::TypePtr& wanted) {
  Value* const value = loop->input(input);
  if (value->node()->kind() != c10::prim::TupleConstruct) return false;
  const auto found = found_type(value);
  if (*found == *wanted || !found->isSubtypeOf(*wanted)) return false;
  if (*value->type() == *found) return true;
  Node* const tuple = loop->owningGraph()->createTuple(value->node()->inputs())->insertBefore(loop);
  loop->replaceInput(input, tuple->output()->setType(found));
  return true;
}

// Torch fails over two equal constants of tuples with such things in them: it cannot compare them.
bool is_incomparable(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::StreamObjType:
      return true;
    case c10::TypeKind::ClassType:  // of objects it compares where they are
      return false;
    default:
      const auto parts = type->containedTypes();
      return std::any_of(parts.begin(), parts.end(), is_incomparable);
  }
}

// Whether something of the type `wanted` goes there, and a reader of the file would not find that.
bool is_to_be_widened(Value* value, const c10::TypePtr& wanted) {
  return open_tuple(wanted) && !is_wide(value, wanted);
}
// Each that reads it would get one of its own.
bool must_not_be_repeated(Value* value, const c10::TypePtr& wanted) {
  return is_incomparable(wanted) || is_incomparable(value->type());
}

void widen_input(Node* reader, std::size_t input, const c10::TypePtr& wanted) {
  Value* const value = reader->input(input);
  if (!is_to_be_widened(value, wanted) || must_not_be_repeated(value, wanted)) return;
  if (reader->kind() == c10::prim::Loop && begins_as_another(reader, input, wanted)) return;
  reader->replaceInput(input, widened(value, wanted, reader));
}

// visit(reader, input, the type that goes there) where a file's reader would have to find the type.
template <class Visit>
void for_each_place(Node* node, Visit visit) {
  if (node->kind() == c10::prim::ListConstruct || node->kind() == c10::prim::DictConstruct) {
    const auto parts = node->output()->type()->containedTypes();  // one, or a key and what is found by it
    for (std::size_t i = 0; i < node->inputs().size(); ++i) visit(node, i, parts[i % parts.size()]);
  } else if (node->kind() == c10::prim::Loop) {
    const torch::jit::LoopView loop(node);
    for (std::size_t i = 0; i < loop.carriedInputs().size(); ++i)
      visit(node, i + 2, loop.bodyCarriedInputs()[i]->type());
  } else if (node->kind() == c10::prim::If) {
    for (Block* side : node->blocks())
      for (std::size_t i = 0; i < node->outputs().size(); ++i) visit(side->return_node(), i, node->output(i)->type());
  }
}

}  // namespace

void widen_tuples(Block* top) {
  for_each_block(top, [](Block* block) {
    for (auto it = block->nodes().begin(); it != block->nodes().end();) for_each_place(*it++, widen_input);
  });
}

bool reads_tuples_not_to_be_widened(Node* node) {
  bool found = false;
  for_each_place(node, [&](Node* reader, std::size_t input, const c10::TypePtr& wanted) {
    Value* const value = reader->input(input);
    found = found || (is_to_be_widened(value, wanted) && must_not_be_repeated(value, wanted));
  });
  return found;
}

}  // namespace tailor
