#include "pass_text.h"

#include <algorithm>
#include <charconv>
#include <sstream>

namespace tailor::fuzz {
namespace {

using Kind = Attribute::Kind;
using Values = Attribute::Values;

const char* kind_of(const Attribute& a) {
  static const char* names[] = {"parameter", "buffer", "list", "float", "int", "bool", "None"};
  return names[static_cast<int>(a.kind)];
}

std::string shortest(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

std::string described(const Attribute& a) {
  std::string text = "#   " + a.name + ": " + kind_of(a);
  if (a.kind == Kind::number || a.kind == Kind::integer || a.kind == Kind::flag) return text + " " + shortest(a.number);
  if (a.kind == Kind::nothing) return text;
  if (a.kind == Kind::tensors) {
    text += " of";
    for (const std::string& path : a.holds) text += " " + path;
    return text;
  }
  if (!a.same.empty()) return text + ", another name of " + a.same;
  if (!a.alias.empty())
    return text + ", a view of " + a.alias + (a.silent ? ", with a version counter of its own" : "");
  std::string sizes;
  for (const auto size : a.shape) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  text += " (" + sizes + ")";
  if (a.values == Values::positive) text += ", positive";
  if (a.values == Values::counter) text += ", a counter";
  if (a.values == Values::zero) text += ", zero";
  if (a.gradient) text += ", wants a gradient";
  if (a.float32) text += ", float32";
  return text;
}

bool leads_through(const std::string& path, const std::string& name) {
  return path == name || path.starts_with(name + ".");
}

// Whether the class's text, or what another attribute is, names this one.
bool is_named(const std::string& name, const Class& type, const std::string& text) {
  const auto by = [&](const std::string& path) { return leads_through(path, name); };
  return text.find("self." + name) != std::string::npos ||
         std::ranges::any_of(
             type.attributes,
             [&](const Attribute& a) { return by(a.alias) || by(a.same) || std::ranges::any_of(a.holds, by); }) ||
         std::ranges::any_of(type.children, [&](const Child& child) { return by(child.same); });
}

class Writer {
 public:
  Writer(const Model& model, const Without& without) : model_(model), without_(without) {}

  std::string take() {
    std::string classes;
    for (const ClassPtr& type : model_.classes) name_of(type);
    const Sizes& sizes = model_.sizes;
    std::ostringstream out;
    out << "# " << to_string(model_.type) << ", in " << sizes.in << ", out " << sizes.out << ", groups " << sizes.groups
        << ", values " << model_.seed + (model_.draw << 32) << "\n"
        << text_;
    for (const Call& call : model_.calls)
      if (!without_.contains(call.number))
        out << "# call " << call.method << ": " << to_string(call.input) << ", " << call.rows << " rows, "
            << (call.training ? "training" : "eval") << (call.gradients ? ", with gradients" : "") << "\n";
    return out.str();
  }

 private:
  // Writes the class down where it has not been, after those of its children.
  std::string name_of(const ClassPtr& type) {
    if (const auto known = names_.find(type.get()); known != names_.end()) return known->second;
    const Source source = source_of(*type, without_);
    std::string body;
    for (const Attribute& a : type->attributes)
      if (is_named(a.name, *type, type->part + source.text)) body += described(a) + "\n";
    for (const Child& child : type->children)
      if (is_named(child.name, *type, source.text))
        body += "#   " + child.name + ": module " + name_of(child.type) +
                (child.same.empty() ? "" : ", whose weight is " + child.same) + "\n";
    std::istringstream part(type->part);
    for (std::string line; std::getline(part, line);)
      if (!line.empty()) body += line + "\n";
    body += source.text;
    for (const auto& [number, places] : source.sites) {
      const Chain& chain = model_.chains[static_cast<std::size_t>(number)];
      for (const std::string& place : places) {
        body += "# " + place + ": " + chain.rule + ", " + to_string(chain.fate);
        for (const std::string& what : chain.disturbed) body += ", " + what;
        body += "\n";
      }
    }
    std::string& name = by_body_[type->name + "\n" + body];  // some parts of torch.nn's are the same
    if (name.empty()) {
      const int twins = ++of_name_[type->name];
      name = type->name + (twins == 1 ? "" : "_" + std::to_string(twins));
      text_ += "# class " + name + " in " + type->file + (type == model_.top ? ", the model" : "") + "\n" + body;
    }
    return names_[type.get()] = name;
  }

  const Model& model_;
  const Without& without_;
  std::map<const Class*, std::string> names_;
  std::map<std::string, std::string> by_body_;
  std::map<std::string, int> of_name_;
  std::string text_;
};

}  // namespace

std::string description_of(const Model& model, const Without& without) { return Writer(model, without).take(); }

}  // namespace tailor::fuzz
