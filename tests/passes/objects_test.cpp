// What hangs in a module, wherever it hangs.
#include "passes/objects.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tailor::test {
namespace {

using torch::jit::Module;
using Places = std::vector<std::string>;

c10::IValue list_of(const std::vector<c10::IValue>& values) {
  c10::List<c10::IValue> list(c10::AnyType::get());
  for (const auto& value : values) list.push_back(value);
  return list;
}

Module holding(const c10::TypePtr& type, const c10::IValue& value) {
  Module module("Holding");
  module.register_attribute("held", type, value);
  return module;
}

Places places_in(const Module& module) {
  Places places;
  for_each_held(*module._ivalue(), [&](const Held& held) {
    if (held.value.isObject() || held.value.isTensor())
      places.push_back(held.place + (held.has_own_class ? " of a known class" : ""));
  });
  return places;
}

TEST(Objects, InListsTuplesAndDictionaries) {
  const c10::IValue one = Module("One")._ivalue(), two = Module("Two")._ivalue();
  c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
  dict.insert("left", one);
  dict.insert(7, two);
  dict.insert(0.5, one);
  const c10::IValue pair = c10::ivalue::Tuple::create({1, at::ones(2), two});
  EXPECT_EQ(places_in(holding(c10::AnyType::get(), list_of({"text", one, pair, dict}))),
            (Places{"held.1", "held.2.1", "held.2.2", "held.3.left", "held.3.7", "held.3.2"}));
}

TEST(Objects, OfWhichTheirOwnerKnowsTheClass) {
  const Module part("Part");
  const auto known = [&](const c10::TypePtr& type, const c10::IValue& value) {
    return places_in(holding(type, value)).at(0).ends_with("known class");
  };
  c10::List<c10::IValue> list(part.type());
  list.push_back(part._ivalue());
  EXPECT_TRUE(known(part.type(), part._ivalue()));
  EXPECT_TRUE(known(c10::OptionalType::create(part.type()), part._ivalue()));
  EXPECT_TRUE(known(c10::ListType::create(part.type()), list));
  EXPECT_FALSE(known(c10::AnyType::get(), list));
  EXPECT_FALSE(known(c10::AnyType::get(), part._ivalue()));
}

TEST(Objects, EachOnceThoughTheyHaveOneAnother) {
  const Module part("Part");
  const auto list = list_of({part._ivalue(), part._ivalue()});
  Module whole = holding(c10::AnyType::get(), list);
  list.toList().push_back(list);
  list.toList().push_back(whole._ivalue());
  Places paths;
  for (const auto& [path, object] : objects_in(whole)) paths.push_back(path);
  EXPECT_EQ(paths, (Places{"", "held.0"}));
  list.toList().clear();  // or nobody would ever free it
}

TEST(Objects, AreFoundByTheirPaths) {
  Module part("Part");
  part.register_buffer("buffer", at::full({}, 3));
  part.register_attribute("count", c10::IntType::get(), 5);
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("a", c10::IValue());
  dict.insert("a.b", list_of({part._ivalue()}));
  const Module whole = holding(c10::AnyType::get(), dict);
  const auto at = [&](const char* path) { return held_at(*whole._ivalue(), path); };
  ASSERT_TRUE(at("held.a.b.0.buffer"));
  EXPECT_EQ(at("held.a.b.0.buffer")->toTensor().item<int>(), 3);
  EXPECT_EQ(at("held.a.b.0.count")->toInt(), 5);
  EXPECT_TRUE(at("held")->isGenericDict());
  for (const char* path : {"", "hel", "held.a.b.1", "held.a.b.0.", "held.a.b.0.buffer.x", "count"})
    EXPECT_FALSE(at(path)) << path;
}

}  // namespace
}  // namespace tailor::test
