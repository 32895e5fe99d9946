#include "pass_disturb.h"

#include <algorithm>

#include "pass_disturber.h"
#include "pass_parts.h"

namespace tailor::fuzz {
namespace {

using Kind = Attribute::Kind;
using Values = Attribute::Values;

}  // namespace

Disturber::Disturber(Scope& scope, const Planted& planted, Disturbances& to)
    : s_(scope), r_(scope.random), p_(planted), to_(to) {
  const int last = static_cast<int>(p_.statements.size()) - 1;
  at_ = static_cast<int>(r_.below(p_.statements.size() + 1)) - 1;
  if (r_.chance(0.5) && last > 0) at_ = static_cast<int>(r_.below(static_cast<std::size_t>(last)));  // inside
  inside_ = at_ >= 0 && at_ < last;
  if (at_ >= 0) gap_ = p_.statements[static_cast<std::size_t>(at_)].gap;
  if (at_ == last) gap_.value = p_.result;
  if (inside_) noticed_ = gap_.before_bias || gap_.after_norm ? Fate::stays : Fate::fuses;
}

void Disturber::run() {
  switch (r_.below(16)) {
    case 0:
    case 1:
      second_reader();
      break;
    case 2:
    case 3:
      shape_reader();
      break;
    case 4:
      view();
      break;
    case 5:
    case 6:
      write();
      break;
    case 7:
      write_to_alias();
      break;
    case 8:
      assign();
      break;
    case 9:
      mode();
      break;
    case 10:
      write_to_list();
      break;
    case 11:
      write_under_another_name();
      break;
    case 12:
      write_to_submodule();
      break;
    case 13:
      write_to_what_is_the_same();
      break;
    case 14:
      write_to_what_goes_round();
      break;
    default:
      work();
  }
  if (!before_.empty()) to_.inside.push_back({-1, std::move(before_)});
  if (!here_.empty()) to_.inside.push_back({at_, std::move(here_)});
  for (Piece& piece : afterwards_) to_.afterwards.push_back(std::move(piece));
}

void Disturber::note(Fate inside, const std::string& what) {
  const char* where = inside_ ? "" : at_ < 0 ? ", before" : ", after";
  disturb(chain(), inside_ ? inside : Fate::fuses, what + where);
}

void Disturber::put_under(std::string header, std::string text) {
  here_.push_back(line(std::move(header), number_));
  here_.back().flat = s_.number();
  here_.back().body.push_back(line(std::move(text), 0));
}

void Disturber::second_reader() {
  if (gap_.value.empty()) return shape_reader();
  const std::string& v = gap_.value;
  const std::string name = s_.fresh("k");
  switch (r_.below(8)) {
    case 0:
      put("t = t + " + v + ".sum()");
      break;
    case 1:
      put_under(r_.text({"if self.training:", "if x.size(0) > 2:", "for i in range(2):"}), "t = t + " + v + ".mean()");
      break;
    case 2:
      put("self." + s_.buffer("kept", {s_.model.sizes.out}) + " = " + v);
      return note(Fate::stays, "the value stored in an attribute");
    case 3:
      put(name + " = [" + v + "]");
      put_afterwards("t = t + " + name + "[0].sum()");
      return note(Fate::stays, "the value stored in a list");
    case 4:
      put(name + " = (" + v + ", x)");
      put_afterwards("t = t + " + name + "[0].sum()");
      return note(Fate::stays, "the value stored in a tuple");
    case 5:
      put(name + " = {'a': " + v + "}");
      put_afterwards("t = t + " + name + "['a'].sum()");
      return note(Fate::stays, "the value stored in a dict");
    case 6:
      if (s_.returned) {
        put(name + " = " + v);
        s_.returned->push_back(name);
        return note(Fate::stays, "the value returned");
      }
      [[fallthrough]];
    default:
      put(name + " = " + v);
      put_afterwards("t = t + " + name + ".sum()");
  }
  note(Fate::stays, "a second reader");
}

void Disturber::shape_reader() {
  if (gap_.value.empty()) return work();
  const std::string& v = gap_.value;
  const std::string name = s_.fresh("n");
  const Fate quiet = gap_.before_bias ? Fate::stays : Fate::fuses;
  // A size by its place may raise; torch.nn's modules ask for it all the time, but before the norm.
  const Fate may_raise = gap_.after_norm ? Fate::either : noticed_;
  switch (r_.below(8)) {
    case 0:
    case 1:
      put(name + " = " + r_.of<std::string>({v + ".dim()", "len(" + v + ")", v + ".numel()"}));
      put_afterwards("t = t + " + name);
      return note(here_.back().line.find("len(") != std::string::npos ? may_raise : quiet, "a shape reader");
    case 2:
      put(name + " = " + v + r_.text({".size()", ".shape"}));
      put_afterwards("t = t + " + name + "[0]");
      return note(quiet, "a shape reader");
    case 3:
    case 4:
      put(name + " = " + v + r_.text({".size(0)", ".size(1)", ".size(-1)", ".shape[0]", ".shape[1]"}));
      put_afterwards("t = t + " + name);
      return note(may_raise, "a reader of one size");
    case 5:
      put("assert " + v + ".dim() " + r_.text({"== 2", "< 9", "> 0"}));
      return note(noticed_, "a check of the shape");
    case 6:
      put_under("if " + v + ".size(0) " + r_.text({"> 3:", "== 1:"}), "t = t + " + v + ".size(1)");
      return note(may_raise, "a reader of one size");
    default:
      put(name + " = " + v + r_.text({".is_floating_point()", ".requires_grad", ".is_contiguous()"}));
      put_afterwards("t = t + int(" + name + ")");
      return note(Fate::either, "a reader of another property");
  }
}

void Disturber::view() {
  if (gap_.value.empty()) return write();
  const std::string& v = gap_.value;
  const std::string name = s_.fresh("view");
  switch (r_.below(5)) {
    case 0:
      put(name + " = " + v + r_.text({".view(-1)", "[0]", ".t()", ".detach()", "[:, 0]"}));
      put(name + ".add_(1.0)");
      break;
    case 1:
      put(v + r_.text({"[0] = 1.0", "[:, 0] = 0.5"}));
      break;
    case 2:
      if (r_.chance(0.2)) {
        put("torch._foreach_add_([" + v + "], 0.5)");
        s_.model.writes_unseen = true;
      } else {
        put(v + r_.text({".add_(0.5)", ".mul_(2.0)", ".zero_()", ".relu_()", ".sigmoid_()"}));
      }
      break;
    case 3:
      put(name + " = " + v + r_.text({".view(-1)", "[0]", ".t()", ".detach()", "[:, 0]"}));
      put_afterwards("t = t + " + name + ".sum()");
      return note(Fate::stays, "a view that is read");
    default:
      put(name + " = " + v + r_.text({".view(-1)", "[0]", ".t()"}));
      put_afterwards(name + ".add_(1.0)");
      return note(Fate::stays, "a view that is written to later");
  }
  note(Fate::stays, "the value written to");
}

void Disturber::mode() {
  if (inside_ && r_.chance(0.5)) {  // the chain begins without and goes on with gradients
    to_.inside.push_back({-1, {line("torch.set_grad_enabled(False)", number_)}});
    put("torch.set_grad_enabled(True)");
  } else {
    put("torch.set_grad_enabled(False)");
    put_afterwards("torch.set_grad_enabled(True)");
  }
  note(Fate::stays, "gradients switched off");
}

void Disturber::work() {
  const std::string name = s_.fresh("u");
  Fate fate = noticed_;
  switch (r_.below(16)) {
    case 0:
      put(name + " = torch.relu(x)");
      put_afterwards("t = t + " + name + ".sum()");
      break;
    case 1:
      put("self." + s_.buffer("count", {}, Values::counter) + ".add_(1)");
      break;
    case 2:
      put(other_buffer() + r_.text({".mul_(0.9)", ".add_(0.1)", ".zero_()"}));
      break;
    case 3:
      put("t = t + x.sum()");
      break;
    case 4:
      put("assert x.dim() < 9");
      break;
    case 5:
      put_under(r_.text({"if x.dim() > 2:", "if x.size(0) == 1:", "if x.size(-1) > 100:"}),
                "raise Exception(\"stop\")");
      break;
    case 6:
      put_under("if self.training:", "self." + s_.buffer("count", {}, Values::counter) + ".add_(1)");
      break;
    case 7:
      put_under("for i in range(2):", other_buffer() + ".add_(0.1)");
      break;
    case 8:
      put(name + " = x * 2.0");
      put(name + ".add_(1.0)");
      put_afterwards("t = t + " + name + ".sum()");
      break;
    case 9:
      put_under("if x.size(0) > 3:", "t = t * 0.5");
      break;
    case 10:
      put(name + " = torch.linear(x, self." + s_.tensor("w", {3, s_.model.sizes.in}) + ")");
      put_afterwards("t = t + " + name + ".sum()");
      break;
    case 11:
      put(other_buffer() + r_.text({"[0] = 1.0", ".view(-1).mul_(0.9)"}));
      fate = std::max(fate, Fate::either);
      break;
    case 12: {
      const Target target = any_operand();
      const std::string read = target.is_attribute() ? target.path : other_buffer();
      put(name + " = torch._foreach_mul([" + read + ", " + other_buffer() + "], 2.0)");
      put_afterwards("t = t + " + name + "[0].sum()");
      break;
    }
    case 13:
      put(name + " = torch.rand(2)");
      put_afterwards("t = t + " + name + ".sum()");
      break;
    case 14:
      put(name + " = self." + s_.child("drop", dropout_part()) + ".forward(x)");
      put_afterwards("t = t + torch.rand(2).sum()");
      return note(fate, "a draw that nobody reads");
    default:
      put(name + " = self." + s_.child("drop", dropout_part()) + ".forward(" + other_buffer() + ")");
      put(name + ".add_(0.1)");
      return note(std::max(fate, Fate::either), "a write whose result nobody reads");
  }
  note(fate, "work on other values");
}

void add_disturbance(Scope& scope, const Planted& planted, Disturbances& to) { Disturber(scope, planted, to).run(); }

}  // namespace tailor::fuzz
