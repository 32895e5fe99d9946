#include "objects.h"

#include <algorithm>
#include <set>
#include <unordered_set>
#include <utility>

namespace tailor {
namespace {

using c10::IValue;
using c10::TypePtr;

bool is_container(const IValue& value) { return value.isList() || value.isTuple() || value.isGenericDict(); }

// What is in a list of numbers or strings is no more than that.
bool is_of_interest(const IValue& value) { return value.isObject() || value.isTensor() || is_container(value); }

TypePtr without_none(const TypePtr& declared) {
  const auto optional = declared->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : declared;
}

// What is known of an element; where several types are possible, nothing.
TypePtr element_of(const TypePtr& declared, std::size_t i) {
  const auto elements = declared->containedTypes();
  return declared->kind() == c10::TypeKind::UnionType || i >= elements.size() ? c10::AnyType::get() : elements[i];
}

// A dictionary keeps its order, which tells apart what no name can.
std::string name_of(const IValue& key, std::size_t i) {
  return key.isString() ? key.toStringRef() : std::to_string(key.isInt() ? key.toInt() : static_cast<int64_t>(i));
}

// Of objects in lists in objects. Whoever walks deeper runs out of stack, in a file that was made for that.
class Deeper {
 public:
  Deeper() {
    TORCH_CHECK_VALUE(++depth < most, "what the model has in its attributes is nested more than ", most, " deep");
  }
  ~Deeper() { --depth; }

 private:
  static constexpr int most = 5000;
  static thread_local int depth;
};
thread_local int Deeper::depth = 0;

class Walk {
 public:
  explicit Walk(const std::function<void(const Held&)>& visit) : visit_(visit) {}

  void visit(const std::string& place, const IValue& value, const TypePtr& declared_or_none) {
    const auto declared = without_none(declared_or_none);
    if (is_container(value))
      look_into(place, value, declared);
    else
      visit_({place, value, declared->cast<c10::ClassType>() != nullptr});
  }

 private:
  // A list may have itself as an element. One that hangs in two places under two types is two: of one more may be known.
  void look_into(const std::string& place, const IValue& value, const TypePtr& declared) {
    if (!seen_.emplace(value.internalToPointer(), declared.get()).second) return;
    const Deeper deeper;
    const auto all = [&](const auto& elements, const auto& type_of) {
      for (std::size_t i = 0; i < elements.size(); ++i)
        if (is_of_interest(elements[i])) visit(beneath(place, std::to_string(i)), elements[i], type_of(i));
    };
    if (value.isList()) {
      all(value.toListRef(), [&](std::size_t) { return element_of(declared, 0); });
    } else if (value.isTuple()) {
      all(value.toTupleRef().elements(), [&](std::size_t i) { return element_of(declared, i); });
    } else {
      std::size_t i = 0;
      for (const auto& entry : value.toGenericDict()) {
        if (is_of_interest(entry.value()))
          visit(beneath(place, name_of(entry.key(), i)), entry.value(), element_of(declared, 1));
        ++i;
      }
    }
  }

  const std::function<void(const Held&)>& visit_;
  std::set<std::pair<const void*, const c10::Type*>> seen_;
};

void add_objects(const Object& object, const std::string& path, std::unordered_set<const void*>& seen,
                 std::vector<Placed>& objects) {
  if (!seen.insert(object.get()).second) return;
  objects.push_back({path, object});
  for_each_held(*object, [&](const Held& held) {
    if (held.value.isObject()) add_objects(held.value.toObject(), beneath(path, held.place), seen, objects);
  });
}

}  // namespace

void for_each_held(const c10::ivalue::Object& owner, const std::function<void(const Held&)>& visit) {
  const Deeper deeper;
  Walk walk(visit);
  const auto type = owner.type();
  for (std::size_t i = 0; i < std::min(owner.slots().size(), type->numAttributes()); ++i)
    walk.visit(type->getAttributeName(i), owner.slots()[i], type->getAttribute(i));
}

std::vector<Placed> objects_in(const torch::jit::Module& module) {
  std::unordered_set<const void*> seen;
  std::vector<Placed> objects;
  add_objects(module._ivalue(), "", seen, objects);
  return objects;
}

std::optional<IValue> held_at(const c10::ivalue::Object& owner, std::string_view path) {
  if (const auto slot = owner.type()->findAttributeSlot(std::string(path))) return owner.getSlot(*slot);
  std::optional<IValue> found;
  for_each_held(owner, [&](const Held& held) {
    if (found || !path.starts_with(held.place)) return;
    const auto rest = path.substr(held.place.size());
    if (rest.empty())
      found = held.value;
    else if (rest.front() == '.' && held.value.isObject())
      found = held_at(held.value.toObjectRef(), rest.substr(1));
  });
  return found;
}

std::string beneath(const std::string& path, const std::string& place) {
  return path.empty() ? place : path + "." + place;
}

}  // namespace tailor
