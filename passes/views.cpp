#include "views.h"

#include <algorithm>
#include <utility>

namespace tailor {
namespace {

bool is_one_of(const Node* node, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [node](const char* name) { return is_aten(node, name); });
}

bool is_part(const Node* view) { return is_one_of(view, {"diagonal", "narrow", "select", "slice"}); }
bool may_be_a_copy(const Node* view) {
  return is_one_of(
      view, {"contiguous", "flatten", "reshape", "reshape_as", "ravel", "to", "coalesce", "pin_memory", "resolve_conj",
             "resolve_neg", "_autocast_to_full_precision", "_autocast_to_reduced_precision"});
}

}  // namespace

Value* handed_on(const Value* value) {
  const Node* producer = value->node();
  const auto* schema = producer->maybeSchema();
  if (!schema || producer->outputs().size() != 1 || schema->returns().size() != 1) return nullptr;
  const auto* made = schema->returns()[0].alias_info();
  if (!made || made->isWildcardBefore() || !made->containedTypes().empty()) return nullptr;
  for (std::size_t i = 0; i < schema->arguments().size() && i < producer->inputs().size(); ++i) {
    const auto* given = schema->arguments()[i].alias_info();
    if (given && given->beforeSets() == made->beforeSets()) return const_cast<Value*>(producer->input(i));
  }
  return nullptr;
}

Value* Views::whole_of(Value* value) {
  std::vector<Value*> on_the_way;
  for (value = seen(value);; value = seen(value)) {
    if (const auto known = wholes_.find(value); known != wholes_.end()) {
      value = known->second;
      break;
    }
    Value* before = is_part(value->node()) || may_be_a_copy(value->node()) ? nullptr : handed_on(value);
    if (!before) break;
    on_the_way.push_back(std::exchange(value, before));
  }
  for (const Value* each : on_the_way) wholes_[each] = value;
  return value;
}

// The first value of all of this one's memory, then those whose memory it is a part of, as far as the graph shows.
std::vector<Value*> Views::owners_of(const Value* value) {
  std::vector<Value*> owners = {whole_of(const_cast<Value*>(value))};
  while (Value* before = is_part(owners.back()->node()) ? handed_on(owners.back()) : nullptr)
    owners.push_back(whole_of(before));
  return owners;
}

bool Views::share_memory(const Value* one, const Value* other) {
  const std::vector<Value*> of_one = owners_of(one), of_other = owners_of(other);
  const auto is_among = [](const Value* value, const std::vector<Value*>& owners) {
    return std::find(owners.begin(), owners.end(), value) != owners.end();
  };
  if (is_among(of_one.front(), of_other) || is_among(of_other.front(), of_one)) return true;
  if (of_one.size() > 1 && of_other.size() > 1) return false;
  const std::string path = attribute_path(of_one.back());  // attributes are looked up anew each time
  return !path.empty() && path == attribute_path(of_other.back());
}

}  // namespace tailor
