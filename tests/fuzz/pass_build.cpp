#include "pass_build.h"

#include <ATen/ATen.h>

#include <regex>

#include "../passes/source.h"
#include "random.h"

namespace tailor::fuzz {
namespace {

using torch::jit::Module;
using Kind = Attribute::Kind;
using Values = Attribute::Values;

bool is_tensor(const Attribute& attribute) {
  return attribute.kind == Kind::parameter || attribute.kind == Kind::buffer;
}

// A class with all its slots, their values still to come.
Module declared(const Class& type) {
  Module module(type.name);
  const auto& cls = module.type();
  for (const Attribute& a : type.attributes) {
    if (is_tensor(a))
      cls->addAttribute(a.name, c10::TensorType::get(), a.kind == Kind::parameter, a.kind == Kind::buffer);
    else if (a.kind == Kind::tensors)
      cls->addAttribute(a.name, c10::ListType::ofTensors());
    else if (a.kind == Kind::number)
      cls->addAttribute(a.name, c10::FloatType::get());
    else if (a.kind == Kind::integer)
      cls->addAttribute(a.name, c10::IntType::get());
    else if (a.kind == Kind::nothing)
      cls->addAttribute(a.name, c10::NoneType::get());
    else
      cls->addAttribute(a.name, c10::BoolType::get());
  }
  cls->addAttribute("training", c10::BoolType::get());
  return module;
}

// Classes like torch.nn's are the same in every model.
const Module& part_of(const Class& type) {
  static auto* parts = new std::map<std::string, Module>;
  const auto found = parts->find(type.name);
  if (found != parts->end()) return found->second;
  Module module = declared(type);
  test::define(module, type.part, type.file);
  return parts->emplace(type.name, module).first->second;
}

// "gemm2.weight" of a module.
at::Tensor tensor_at(const Module& module, const std::string& path) {
  const auto dot = path.find('.');
  if (dot == std::string::npos) return module._ivalue()->getAttr(path).toTensor();
  return tensor_at(module._ivalue()->getAttr(path.substr(0, dot)).toModule(), path.substr(dot + 1));
}

// `f = fork(self.part, x)` becomes `f = self.part(x)`, and `torch.wait(f)` `f`.
std::string without_forks(const std::string& text) {
  static const std::regex fork(R"(fork\(([^,]*), )"), wait(R"(torch\.wait\(([a-z0-9]*)\))");
  return std::regex_replace(std::regex_replace(text, fork, "$1("), wait, "$1");
}

// `self.s.data.mul_(0.9)` becomes `self.s.detach().mul_(0.9)`.
std::string written_visibly(const std::string& text) {
  static const std::regex data(R"(\.data\.)");
  return std::regex_replace(text, data, ".detach().");
}

}  // namespace

at::ScalarType scalar_type(Type type) {
  switch (type) {
    case Type::float64:
      return at::kDouble;
    case Type::float32:
      return at::kFloat;
    case Type::bfloat16:
      return at::kBFloat16;
    case Type::float16:
      return at::kHalf;
  }
  return at::kDouble;
}

at::Tensor random_values(std::uint64_t seed, const std::string& name, at::IntArrayRef shape, Values values) {
  if (values == Values::counter) return at::zeros(shape, at::kLong);
  at::Tensor result = at::empty(shape, at::kDouble);
  Random random(mixed(seed, name));
  double* data = result.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    if (values == Values::positive)
      data[i] = 0.5 + 1.5 * random.uniform();
    else if (values == Values::normal)  // near enough to it
      data[i] = 2 * (random.uniform() + random.uniform() + random.uniform() - 1.5);
    else
      data[i] = 0;
  }
  return result;
}

Compiled::Compiled(const Model& model, const Without& without, As as) : model_(model), as_(as) {
  for (const ClassPtr& type : model.classes) {
    Module module = declared(*type);
    for (const Child& child : type->children) {
      const Module& prototype = child.type->part.empty() ? prototypes_.at(child.type.get()) : part_of(*child.type);
      module.type()->addAttribute(child.name, prototype.type());
    }
    Source source = source_of(*type, without);
    if (!as.forks) source.text = without_forks(source.text);
    if (as.visibly) source.text = written_visibly(source.text);
    forks_ = forks_ || source.text.find("fork(") != std::string::npos;
    switches_gradients_ = switches_gradients_ || source.text.find("set_grad_enabled(True)") != std::string::npos;
    test::define(module, source.text, type->file);
    prototypes_.emplace(type.get(), module);
    for (auto& [chain, places] : source.sites) sites_[chain] = std::move(places);
  }
}

Module Compiled::instance(Type type) const { return make(*model_.top, "", type); }

Module Compiled::make(const Class& type, const std::string& path, Type held) const {
  const Module& prototype = type.part.empty() ? prototypes_.at(&type) : part_of(type);
  Module module(prototype._ivalue()->compilation_unit(), prototype.type());
  const auto object = module._ivalue();
  for (const Attribute& a : type.attributes) {
    if (a.kind == Kind::number) object->setAttr(a.name, a.number);
    if (a.kind == Kind::integer) object->setAttr(a.name, static_cast<std::int64_t>(a.number));
    if (a.kind == Kind::flag) object->setAttr(a.name, a.number != 0);
    if (!is_tensor(a) || !a.alias.empty() || !a.same.empty()) continue;
    at::Tensor value = random_values(model_.seed + (model_.draw << 32), path + a.name, a.shape, a.values);
    if (a.values != Values::counter) {
      if (a.shape.size() == 2) value *= 0.4;  // a weight
      value = value.to(a.float32 ? at::kFloat : scalar_type(model_.type));
      if (!a.float32 || held == Type::float64)
        value = value.to(a.float32 && model_.type == Type::float64 ? at::kFloat : scalar_type(held));
    }
    object->setAttr(a.name, value.set_requires_grad(a.gradient));
  }
  object->setAttr("training", true);
  for (const Child& child : type.children)
    object->setAttr(child.name, make(*child.type, path + child.name + ".", held)._ivalue());
  share(type, module);
  return module;
}

// What is a tensor of a child's or of the class itself under another name.
void Compiled::share(const Class& type, const Module& module) const {
  const auto object = module._ivalue();
  for (const Child& child : type.children)
    if (!child.same.empty())
      object->getAttr(child.name).toModule()._ivalue()->setAttr("weight", tensor_at(module, child.same));
  for (const Attribute& a : type.attributes) {
    if (!a.same.empty()) object->setAttr(a.name, tensor_at(module, a.same));
    if (!a.alias.empty()) {
      const at::Tensor original = tensor_at(module, a.alias);
      object->setAttr(a.name, a.silent && !as_.visibly ? original.variable_data() : original.detach());
    }
    if (a.kind != Kind::tensors) continue;
    c10::List<at::Tensor> all;
    for (const std::string& path : a.holds) all.push_back(tensor_at(module, path));
    object->setAttr(a.name, all);
  }
}

}  // namespace tailor::fuzz
