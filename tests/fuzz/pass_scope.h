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
    const std::string name = fresh(prefix);
    // A norm writes its statistics without a version: of what else reads them, eager's own gradients mix old and new.
    for (const Attribute& a : part->attributes)
      if (!a.shape.empty() && a.alias.empty() && a.same.empty() && a.name.rfind("running_", 0) != 0 &&
          (a.kind == Attribute::Kind::parameter || !part->part.empty()))
        paths.push_back(name + "." + a.name);
    type.children.push_back({name, std::move(part)});
    return name;
  }

  // By its path: "s1", "gemm2.weight".
  const Attribute* find(const std::string& path) const {
    const auto dot = path.find('.');
    if (dot == std::string::npos) return find(type, path);
    for (const Child& child : type.children)
      if (child.name == path.substr(0, dot)) return find(*child.type, path.substr(dot + 1));
    return nullptr;
  }

  // Those of `paths` with a tensor of this shape.
  std::vector<std::string> paths_to(const std::vector<std::int64_t>& shape) const {
    std::vector<std::string> found;
    for (const std::string& path : paths)
      if (find(path)->shape == shape) found.push_back(path);
    return found;
  }

  // Another name of a tensor, in this class.
  std::string another_name(const std::string& path) {
    const Attribute original = *find(path);
    Attribute& attribute = add("same", original.kind);
    attribute.shape = original.shape;
    attribute.same = path;
    return attribute.name;
  }

  void add_method(Piece method) { type.methods.push_back(std::move(method)); }

  // Weights and vectors of chains so far, by their first size: others may share them.
  std::map<std::string, std::vector<std::string>> shared;

  // All tensors of chains and of submodules so far.
  std::vector<std::string> paths;

  // Where a variable may be added to what the method returns: its own block.
  std::vector<std::string>* returned = nullptr;

 private:
  static const Attribute* find(const Class& type, const std::string& name) {
    for (const Attribute& attribute : type.attributes)
      if (attribute.name == name) return &attribute;
    return nullptr;
  }

  int names_ = 0;
};

}  // namespace tailor::fuzz
