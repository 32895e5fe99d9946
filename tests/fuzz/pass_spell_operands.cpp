// The operands of a chain's steps, and how two values are combined.
#include "pass_speller.h"

namespace tailor::fuzz {
namespace {

using Kind = Attribute::Kind;
using Values = Attribute::Values;

}  // namespace

// What computes something of an attribute.
std::string Speller::wrapped(const std::string& path) {
  return r_.of<std::string>({"(" + path + " + 1.0)", "torch.exp(" + path + ")", path + ".unsqueeze(0)",
                             path + ".view(-1)", path + ".abs()", path + ".detach()"});
}

std::string Speller::another_linear() {
  const std::int64_t out = s_.model.sizes.out;
  return "torch.linear(" + other_input_ + ", " + attribute("w", {out, other_in_}) + ")";
}

// A tensor that broadcasts, as an attribute or computed, here or before.
std::string Speller::vector(const char* prefix) {
  const std::int64_t n = s_.model.sizes.out;
  const double draw = r_.uniform();
  if (draw < 0.06) {
    std::string text = another_linear();
    either("another linear's result as an operand");  // of the two either may be the one that is fused
    if (!r_.chance(0.6)) {
      work_inside_ = true;
      return text;
    }
    const std::string name = s_.fresh("v");
    if (r_.chance(0.5)) text += ".mT.contiguous().mT";  // where it stands left, the result has its strides
    out_.setup.push_back(name + " = " + text);
    read(name);
    return name;
  }
  std::vector<std::int64_t> shape{n};
  if (draw < 0.10)
    shape = {1, n};
  else if (draw < 0.15)
    shape = {1};
  else if (draw < 0.18)
    shape = {};
  else if (draw < 0.19)
    shape = {n + 1};
  else if (draw < 0.20)
    shape = {2, 1, n};
  std::string path = attribute(prefix, shape);
  if (draw > 0.98) {
    path = "self." + s_.buffer("single", shape);
    s_.type.attributes.back().float32 = true;
  }
  if (!r_.chance(0.3)) {
    read(path);
    return path;
  }
  read(path, true);
  if (r_.chance(0.5)) {
    work_inside_ = true;
    return wrapped(path);
  }
  const std::string name = s_.fresh("v");
  out_.setup.push_back(name + " = " +
                       r_.of<std::string>({wrapped(path), path + ".clone()", "[" + path + "][0]",
                                           "(" + path + ", " + path + ")[1]", path}));
  return name;
}

Speller::Number Speller::number() {
  switch (r_.below(9)) {
    case 0:
      return {r_.text({"1.7", "2.0", "0.5", "-1.5"})};
    case 1:
      return {r_.text({"2", "3"})};
    case 2:
    case 3:
      return {"self." + s_.value("f", Kind::number, 1.7)};
    case 4:
      return {"self." + s_.value("i", Kind::integer, 2)};
    case 5: {
      const std::string name = s_.fresh("n");
      out_.setup.push_back(name + " = " + out_.input + r_.text({".dim()", ".size(-1)", ".shape[0] + 1"}));
      return {name};
    }
    case 6: {
      const std::string name = s_.fresh("n");
      out_.setup.push_back(name + " = self." + s_.tensor("one", {1}, Values::positive) + ".item()");
      return {name, false, true};
    }
    default: {
      const std::string path =
          "self." +
          s_.tensor("d", r_.chance(0.5) ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{}, Values::positive);
      read(path);
      return {path, true};
    }
  }
}

// As a statement where the value has a name, else as the end of an expression.
void Speller::write_in_place(const std::string& method, const char* sign, const std::string& other) {
  const std::string call = value_ + "." + method + "(" + other + ")";
  if (bound_ && r_.chance(0.5))
    emit(value_ + " " + sign + "= " + other);
  else if (bound_ && r_.chance(0.5))
    emit(call);
  else
    set(call);
}

// value * other, value + other in their plain forms. An operand that is computed after the norm comes too late.
void Speller::combine(const char* name, const char* sign, const std::string& other, bool other_is_tensor,
                      bool may_be_complex) {
  const std::string word = name;
  const bool in_place = r_.chance(0.2);
  // (`number * tensor` with a number of unknown type is no product: TorchScript makes an int of the tensor.)
  const bool commuted = !in_place && !may_be_complex && r_.chance(0.3);
  // Of `s.exp() * bn(…)` the left side runs first, and before the chain if that is one expression.
  if (work_inside_ && after_norm_ && !(commuted && !bound_ && site_pending_))
    stays("work between the norm and what follows");
  if (work_inside_ && commuted && bias_apart_) stays("work between the product and its bias");
  if (in_place) {
    if (may_be_complex) stays("a number that may be complex, in place");
    return write_in_place(word + "_", sign, other);
  }
  if (commuted) {
    if (!other_is_tensor || r_.chance(0.5)) return set("(" + other + " " + sign + " " + value_ + ")");
    return set(r_.chance(0.5) ? "torch." + word + "(" + other + ", " + value_ + ")"
                              : "(" + other + ")." + word + "(" + value_ + ")");
  }
  const std::string alias = word == "mul" ? "multiply" : word;
  set(r_.of<std::string>({"(" + value_ + " " + sign + " " + other + ")", "(" + value_ + " " + sign + " " + other + ")",
                          "torch." + word + "(" + value_ + ", " + other + ")", value_ + "." + word + "(" + other + ")",
                          "torch." + alias + "(" + value_ + ", " + other + ")"}));
}

}  // namespace tailor::fuzz
