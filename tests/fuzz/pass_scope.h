// The class that is being written: names for what a chain or a disturbance needs, and the attributes behind them.
#pragma once
#include "pass_model.h"
#include "random.h"

namespace tailor::fuzz {

class Scope {
 public:
  Scope(Random& random, Model& model, Class& type) : random(random), model(model), type(type) {}

  Random& random;
  Model& model;
  Class& type;

  std::string fresh(const char* prefix) { return prefix + std::to_string(++names_); }
  int number() { return ++model.numbers; }

  Attribute& add(const char* prefix, Attribute::Kind kind) {
    Attribute attribute;
    attribute.name = fresh(prefix);
    attribute.kind = kind;
    type.attributes.push_back(attribute);
    return type.attributes.back();
  }

  // A parameter or a buffer.
  std::string tensor(const char* prefix, std::vector<std::int64_t> shape,
                     Attribute::Values values = Attribute::Values::normal) {
    Attribute& attribute = add(prefix, random.chance(0.7) ? Attribute::Kind::parameter : Attribute::Kind::buffer);
    attribute.shape = std::move(shape);
    attribute.values = values;
    attribute.gradient = attribute.kind == Attribute::Kind::parameter && random.chance(0.7);
    return attribute.name;
  }

  std::string buffer(const char* prefix, std::vector<std::int64_t> shape,
                     Attribute::Values values = Attribute::Values::normal) {
    Attribute& attribute = add(prefix, Attribute::Kind::buffer);
    attribute.shape = std::move(shape);
    attribute.values = values;
    return attribute.name;
  }

  std::string value(const char* prefix, Attribute::Kind kind, double number) {
    Attribute& attribute = add(prefix, kind);
    attribute.number = number;
    return attribute.name;
  }

  std::string child(const char* prefix, ClassPtr part) {
    type.children.push_back({fresh(prefix), std::move(part)});
    return type.children.back().name;
  }

  const Attribute* find(const std::string& name) const {
    for (const Attribute& attribute : type.attributes)
      if (attribute.name == name) return &attribute;
    return nullptr;
  }

  void add_method(Piece method) { type.methods.push_back(std::move(method)); }

  // Weights and vectors of chains so far, by their first size: others may share them.
  std::map<std::string, std::vector<std::string>> shared;

  // Where a variable may be added to what the method returns: its own block.
  std::vector<std::string>* returned = nullptr;

 private:
  int names_ = 0;
};

}  // namespace tailor::fuzz
