#include "origins.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace tailor {
namespace {

bool is_constant(const Value* value) { return value->node()->kind() == c10::prim::Constant; }
bool is_made_here(const Value* value) { return value->node()->kind() == c10::prim::TupleConstruct; }

bool has_own_type(const Value* value) {
  constexpr c10::TypeKind own[] = {c10::TypeKind::TensorType, c10::TypeKind::IntType,    c10::TypeKind::FloatType,
                                   c10::TypeKind::BoolType,   c10::TypeKind::StringType, c10::TypeKind::NoneType};
  return std::find(std::begin(own), std::end(own), value->type()->kind()) != std::end(own);
}

bool is_none_or_not(const Value* value) {
  const bool is_anything = value->type()->kind() == c10::TypeKind::AnyType;  // torch says that it is not None
  return value->mustBeNone() || (value->mustNotBeNone() && !is_anything);
}

}  // namespace

bool is_plain_tensor(const Value* value) { return *value->type() == *c10::TensorType::get(); }

// The value itself, or the first before it for which `holds`; null where there is none.
template <class Holds>
Value* Origins::first(Value* value, Found& found, const Holds& holds) {
  std::vector<const Value*> passed;
  while (value && !holds(value)) {
    if (const auto before = found.find(value); before != found.end()) {
      value = before->second;
      break;
    }
    passed.push_back(value);
    value = value->node()->kind() == c10::prim::unchecked_cast ? value->node()->input() : put_into_tuple(value);
  }
  for (const Value* one : passed) found.emplace(one, value);
  return value;
}

Value* Origins::put_into_tuple(Value* taken) {
  Node* const node = taken->node();
  if (node->kind() != c10::prim::TupleUnpack && node->kind() != c10::prim::TupleIndex) return nullptr;
  Value* const tuple = first(node->input(0), tuples, is_made_here);
  if (!tuple) return nullptr;
  const auto elements = tuple->node()->inputs();
  if (node->kind() == c10::prim::TupleUnpack) return elements[taken->offset()];
  const auto index = torch::jit::toIValue(node->input(1));
  if (!index || !index->isInt()) return nullptr;
  const auto size = static_cast<std::int64_t>(elements.size());
  const std::int64_t i = index->toInt() + (index->toInt() < 0 ? size : 0);
  return i >= 0 && i < size ? elements[static_cast<std::size_t>(i)] : nullptr;
}

std::optional<bool> Origins::truth(Value* value) {
  const Value* constant = first(value, constants, is_constant);
  const auto is = constant ? torch::jit::toIValue(constant) : std::nullopt;
  return is && is->isBool() ? std::optional(is->toBool()) : std::nullopt;
}

std::optional<bool> Origins::is_none(Value* value) {
  const Value* one = first(value, known, is_none_or_not);
  return one ? std::optional(one->mustBeNone()) : std::nullopt;
}

Value* Origins::of_own_type(Value* value) { return first(value, typed, has_own_type); }

Value* Origins::plain_tensor(Value* value) { return first(value, tensors, is_plain_tensor); }

}  // namespace tailor
