// The steps of a chain in all their spellings.
#include <array>

#include "pass_parts.h"
#include "pass_speller.h"

namespace tailor::fuzz {
namespace {

using Kind = Attribute::Kind;
using Values = Attribute::Values;

}  // namespace

void Speller::step(Step step, bool twisted) {
  work_inside_ = false;
  switch (step) {
    case Step::mul:
      return arithmetic("mul", "*", twisted);
    case Step::add:
      return arithmetic("add", "+", twisted);
    case Step::div:
      return divide(twisted);
    case Step::sigmoid:
      return sigmoid(twisted);
    case Step::residual:
      return residual(twisted);
    case Step::swish:
      return swish(twisted);
    case Step::batch_norm:
      batch_norm(twisted);
      after_norm_ = true;
      return;
    case Step::group_norm:
      group_norm(twisted);
      after_norm_ = true;
      return;
  }
}

void Speller::twist_before() {
  const std::string n = std::to_string(s_.model.sizes.out);
  const std::array<std::pair<std::string, const char*>, 14> all = {{{".contiguous()", "a copy inside"},
                                                                    {".clone()", "a copy inside"},
                                                                    {".view(-1, " + n + ")", "a view inside"},
                                                                    {"[:, :]", "a view inside"},
                                                                    {".t().t()", "a view inside"},
                                                                    {".unsqueeze(0).squeeze(0)", "a view inside"},
                                                                    {".detach()", "a view inside"},
                                                                    {".double().to(x.dtype)", "a cast inside"},
                                                                    {".float()", "a cast inside"},
                                                                    {".double()", "a cast inside"},
                                                                    {".relu()", "another step inside"},
                                                                    {".relu_()", "another step inside"},
                                                                    {" + 1.0", "another step inside"},
                                                                    {".narrow(0, 0, 1)", "a view inside"}}};
  const auto& [text, what] = all[r_.below(all.size())];
  if (text[0] == ' ')
    set("(" + value_ + text + ")");
  else
    set(value_ + text);
  stays(what);
}

void Speller::arithmetic(const char* name, const char* sign, bool twisted) {
  const bool is_add = sign[0] == '+';
  const bool takes_number = is_residual_;
  if (twisted) {
    switch (r_.below(takes_number ? 2 : is_add ? 5 : 3)) {
      case 0:
        stays("another operation");
        return set("(" + value_ + (is_add ? " - " : " / ") + "self." +
                   s_.tensor("s", {s_.model.sizes.out}, Values::positive) + ")");
      case 1: {
        stays("writes to another value in place");
        const std::string other = s_.fresh("v");
        bind();
        emit(other + " = torch.relu(" + value_ + ".detach()) * 0.0 + 1.5");
        return set(other + "." + name + "_(" + value_ + ")");
      }
      case 2:
        stays("a number instead of a tensor");
        return set("(" + value_ + " " + sign + r_.text({" 2.0)", " self.training)", " 3)"}));
      case 3:
        stays("alpha");
        return set("torch.add(" + value_ + ", self." + s_.tensor("s", {s_.model.sizes.out}) + ", alpha=" +
                   r_.of<std::string>({"2", "0.5", "-1", "self." + s_.value("f", Kind::number, 1.0)}) + ")");
      default:
        stays("alpha");
        return set("torch.add(self." + s_.tensor("s", {s_.model.sizes.out}) + ", " + value_ + ", alpha=3)");
    }
  }
  if (takes_number && r_.chance(0.7)) {
    const Number n = number();
    return combine(name, sign, n.text, n.is_tensor, n.may_be_complex);
  }
  combine(name, sign, vector("s"), true, false);
}

void Speller::divide(bool twisted) {
  Number d = number();
  may_be_complex_ = d.may_be_complex;
  if (twisted) {
    const std::string v = value_;
    switch (r_.below(5)) {
      case 0:
        stays("a rounding mode");
        return set("torch.div(" + v + ", " + d.text + ", rounding_mode=" + r_.text({"'floor'", "'trunc'"}) + ")");
      case 1:
        stays("operands exchanged");
        return set(d.is_tensor ? "(" + d.text + " / " + v + ")" : "(1.5 / " + v + ")");
      case 2:
        stays("another operation");
        return set("(" + v + " * " + d.text + ")");
      case 3:
        stays("another operation");
        return set("(" + v + " // " + d.text + ")");
      default:
        stays("another operation");
        return set("torch.reciprocal(" + v + ")");
    }
  }
  if (r_.chance(0.2)) {
    if (d.may_be_complex) stays("a number that may be complex, in place");
    return write_in_place("div_", "/", d.text);
  }
  switch (r_.below(6)) {
    case 0:
      return set("torch.div(" + value_ + ", " + d.text + ")");
    case 1:
      return set(value_ + ".div(" + d.text + ")");
    case 2:
      return set("torch." + std::string(r_.text({"divide", "true_divide"})) + "(" + value_ + ", " + d.text + ")");
    case 3:
      if (r_.chance(0.3)) {
        either("rounding_mode=None");
        return set("torch.div(" + value_ + ", " + d.text + ", rounding_mode=None)");
      }
      [[fallthrough]];
    default:
      return set("(" + value_ + " / " + d.text + ")");
  }
}

void Speller::sigmoid(bool twisted) {
  if (twisted) {
    switch (r_.below(3)) {
      case 0:
        stays("another operation");
        return set("torch.tanh(" + value_ + ")");
      case 1:
        stays("overwrites what is read again");
        return set(value_ + ".sigmoid_()");
      default:
        stays("another value of the same shape");
        return set("torch.sigmoid(" + another_linear() + ")");
    }
  }
  if (r_.chance(0.2)) return set("self." + s_.child("sigmoid", sigmoid_part()) + ".forward(" + value_ + ")");
  set(r_.chance(0.5) ? "torch.sigmoid(" + value_ + ")" : value_ + ".sigmoid()");
}

void Speller::residual(bool twisted) {
  const std::string v = value_;
  const std::string& y = residual_;
  if (twisted) {
    switch (r_.below(4)) {
      case 0:
        stays("alpha");
        return set("torch.add(" + v + ", " + y + ", alpha=2)");
      case 1:
        stays("another operation");
        return set("(" + v + " - " + y + ")");
      case 2:
        stays("another value of the same shape");
        return set("(" + v + " + " + another_linear() + ")");
      default:
        stays("another operation");
        return set("(" + v + " * " + y + ")");
    }
  }
  if (r_.chance(0.2)) return write_in_place("add_", "+", y);
  if (r_.chance(0.1)) {
    either("adds to the linear's own result");  // where no number may have made it complex
    return set(y + ".add_(" + v + ")");
  }
  const bool reversed = r_.chance(0.4);
  const std::string &one = reversed ? y : v, &two = reversed ? v : y;
  set(r_.of<std::string>({"(" + one + " + " + two + ")", "torch.add(" + one + ", " + two + ")",
                          "torch.add(" + one + ", " + two + ", alpha=1)", one + ".add(" + two + ")"}));
}

void Speller::swish(bool twisted) {
  if (twisted) {
    switch (r_.below(5)) {
      case 0:
        stays("another operation");
        return set(std::string("torch.") + r_.text({"relu", "gelu", "tanh", "sigmoid", "hardswish"}) + "(" + value_ +
                   ")");
      case 1:
        bind();
        stays("another operation");
        return set("(" + value_ + " * " + value_ + ")");
      case 2:
        bind();
        stays("another operation");
        return set("(" + value_ + " + torch.sigmoid(" + value_ + "))");
      case 3:
        stays("another value of the same shape");
        return set("(" + value_ + " * torch.sigmoid(" + another_linear() + "))");
      default:
        stays("another value of the same shape");
        return set("(torch.sigmoid(" + value_ + ") * " + another_linear() + ")");
    }
  }
  switch (r_.below(7)) {
    case 0:
      return set("torch.silu(" + value_ + ")");
    case 1:
      return set("self." + s_.child("act", silu_part()) + ".forward(" + value_ + ")");
    case 2:
      if (may_be_complex_) stays("a number that may be complex, in place");
      return set("torch.silu_(" + value_ + ")");
    default:
      break;
  }
  bind();
  const std::string v = value_;
  std::string gate = r_.chance(0.5) ? "torch.sigmoid(" + v + ")" : v + ".sigmoid()";
  if (r_.chance(0.3)) {
    const std::string name = s_.fresh("gate");
    emit(name + " = " + gate);
    gate = name;
    if (r_.chance(0.3)) {  // over the gate, which backward wants
      if (r_.chance(0.5)) return set(gate + ".mul_(" + v + ")");
      emit(gate + " *= " + v);
      value_ = gate;
      return;
    }
  }
  if (r_.chance(0.15)) return write_in_place("mul_", "*", gate);
  set(r_.of<std::string>({"(" + v + " * " + gate + ")", "(" + gate + " * " + v + ")",
                          "torch.mul(" + v + ", " + gate + ")", "torch.mul(" + gate + ", " + v + ")",
                          v + ".mul(" + gate + ")", gate + ".mul(" + v + ")"}));
}

}  // namespace tailor::fuzz
