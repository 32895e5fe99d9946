#include "pass_disturb.h"

#include <algorithm>

namespace tailor::fuzz {
namespace {

using Kind = Attribute::Kind;
using Values = Attribute::Values;

class Disturber {
 public:
  Disturber(Scope& scope, const Planted& planted, Disturbances& to)
      : s_(scope), r_(scope.random), p_(planted), to_(to) {
    const int last = static_cast<int>(p_.statements.size()) - 1;
    at_ = static_cast<int>(r_.below(p_.statements.size() + 1)) - 1;
    if (r_.chance(0.5) && last > 0) at_ = static_cast<int>(r_.below(static_cast<std::size_t>(last)));  // inside
    inside_ = at_ >= 0 && at_ < last;
    if (at_ >= 0) gap_ = p_.statements[static_cast<std::size_t>(at_)].gap;
    if (at_ == last) gap_.value = p_.result;
    if (inside_) noticed_ = gap_.before_bias || gap_.after_norm ? Fate::stays : Fate::fuses;
  }

  void run() {
    switch (r_.below(12)) {
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
      default:
        work();
    }
    if (!here_.empty()) to_.inside.push_back({at_, std::move(here_)});
    for (Piece& piece : afterwards_) to_.afterwards.push_back(std::move(piece));
  }

 private:
  Chain& chain() { return s_.model.chains[static_cast<std::size_t>(p_.chain)]; }

  // Where it stands decides, except inside the chain.
  void note(Fate inside, const std::string& what) {
    const char* where = inside_ ? "" : at_ < 0 ? ", before" : ", after";
    disturb(chain(), inside_ ? inside : Fate::fuses, what + where);
  }

  void put(std::string text) { here_.push_back(line(std::move(text), number_)); }
  void put_under(std::string header, std::string text) {
    here_.push_back(line(std::move(header), number_));
    here_.back().flat = s_.number();
    here_.back().body.push_back(line(std::move(text), 0));
  }
  void put_afterwards(std::string text) { afterwards_.push_back(line(std::move(text), number_)); }

  void second_reader() {
    if (gap_.value.empty()) return shape_reader();
    const std::string& v = gap_.value;
    const std::string name = s_.fresh("k");
    switch (r_.below(8)) {
      case 0:
        put("t = t + " + v + ".sum()");
        break;
      case 1:
        put_under(r_.text({"if self.training:", "if x.size(0) > 2:", "for i in range(2):"}),
                  "t = t + " + v + ".mean()");
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

  void shape_reader() {
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
        return note(len_may_raise() ? may_raise : quiet, "a shape reader");
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
  bool len_may_raise() const { return here_.back().line.find("len(") != std::string::npos; }

  void view() {
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
        put(v + r_.text({".add_(0.5)", ".mul_(2.0)", ".zero_()", ".relu_()", ".sigmoid_()"}));
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

  const Operand& operand(bool& was_read) {
    const std::size_t i = r_.below(p_.operands.size());
    was_read = i < gap_.read;
    return p_.operands[i];
  }

  Fate of_write(bool was_read, bool computed, bool through_view) {
    if (noticed_ == Fate::stays) return Fate::stays;
    if (computed) return Fate::either;
    if (was_read) return Fate::stays;
    return through_view ? Fate::either : Fate::fuses;
  }

  void write() {
    bool was_read = false;
    const Operand& target = operand(was_read);
    const std::string& path = target.path;
    const bool is_attribute = path.starts_with("self.");
    bool through_view = false;
    switch (r_.below(6)) {
      case 0:
        put(path + ".copy_(" + path + " * 0.9)");
        break;
      case 1:
        put(path + ".mul_(0.9)");
        break;
      case 2:
        through_view = true;
        // Behind `.data` no version counts: of values that were read before, eager's gradient then mixes old and new ones.
        if (was_read)
          put(path + r_.text({".view(-1).mul_(0.9)", ".detach().mul_(0.9)", "[0] = 0.5"}));
        else
          put(path + r_.text({".view(-1).mul_(0.9)", ".detach().mul_(0.9)", "[0] = 0.5", ".data.mul_(0.9)"}));
        // They may have been read all the same, in a loop's last round or by another chain.
        if (here_.back().line.find(".data.") != std::string::npos) s_.model.silent_writes = true;
        break;
      case 3:
        put_under(r_.text({"if self.training:", "if x.size(0) > 2:", "for i in range(2):"}), path + ".add_(0.25)");
        break;
      case 4: {
        through_view = true;
        const std::string all = s_.fresh("all");
        put(all + " = [" + path + "]");
        put(all + "[0].mul_(0.9)");
        break;
      }
      default:
        put(path + ".add_(0.5)");
    }
    std::string what = was_read ? "an operand written to after it was read" : "an operand written to before it is read";
    if (through_view) what += ", through a view";
    note(of_write(was_read, target.computed || !is_attribute, through_view), what);
  }

  void write_to_alias() {
    bool was_read = false;
    const Operand& target = operand(was_read);
    if (!target.path.starts_with("self.")) return write();
    const std::string of = target.path.substr(5);
    const Attribute* original = s_.find(of);
    if (!original || !original->alias.empty()) return write();
    const auto shape = original->shape;
    Attribute& alias = s_.add("alias", Kind::buffer);
    alias.shape = shape;
    alias.alias = of;
    alias.silent = r_.chance(0.3);
    if (alias.silent) s_.model.silent_writes = true;
    put("self." + alias.name + r_.text({".add_(0.5)", ".mul_(0.9)", ".zero_()"}));
    note(noticed_, "an alias of an operand written to");
  }

  void assign() {
    if (r_.chance(0.5)) {
      const bool is_number = r_.chance(0.5);
      const std::string name =
          is_number ? s_.value("step", Kind::number, 1.0) : s_.buffer("moving", {s_.model.sizes.out});
      put("self." + name + " = " +
          (is_number ? "self." + name + " + 1.0" : "(self." + name + " * 0.5 + 0.1).detach()"));
      put_afterwards("t = t + self." + name + (is_number ? "" : ".sum()"));
      return note(noticed_, "an attribute assigned");
    }
    bool was_read = false;
    const Operand& target = operand(was_read);
    if (!target.path.starts_with("self.") || target.path.find('.', 5) != std::string::npos) return work();
    put(target.path + " = (" + target.path + " * 0.9).detach()");
    s_.model.assigns_operands = true;
    note(target.computed ? std::max(noticed_, Fate::either) : noticed_, "an operand's attribute assigned");
  }

  void mode() {
    if (inside_ && r_.chance(0.5)) {  // the chain begins without and goes on with gradients
      to_.inside.push_back({-1, {line("torch.set_grad_enabled(False)", number_)}});
      put("torch.set_grad_enabled(True)");
    } else {
      put("torch.set_grad_enabled(False)");
      put_afterwards("torch.set_grad_enabled(True)");
    }
    note(Fate::stays, "gradients switched off");
  }

  void work() {
    const std::string name = s_.fresh("u");
    Fate fate = noticed_;
    switch (r_.below(13)) {
      case 0:
        put(name + " = torch.relu(x)");
        put_afterwards("t = t + " + name + ".sum()");
        break;
      case 1:
        put("self." + s_.buffer("count", {}, Values::counter) + ".add_(1)");
        break;
      case 2:
        put("self." + s_.buffer("other", {s_.model.sizes.out}) + r_.text({".mul_(0.9)", ".add_(0.1)", ".zero_()"}));
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
        put_under("for i in range(2):", "self." + s_.buffer("other", {s_.model.sizes.out}) + ".add_(0.1)");
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
        put("self." + s_.buffer("other", {s_.model.sizes.out}) + r_.text({"[0] = 1.0", ".view(-1).mul_(0.9)"}));
        fate = std::max(fate, Fate::either);
        break;
      default:
        put(name + " = torch.rand(2)");
        put_afterwards("t = t + " + name + ".sum()");
    }
    note(fate, "work on other values");
  }

  Scope& s_;
  Random& r_;
  const Planted& p_;
  Disturbances& to_;
  int at_;
  bool inside_;
  Gap gap_;
  Fate noticed_ = Fate::fuses;  // of what can be noticed and stands here
  int number_ = s_.number();
  std::vector<Piece> here_, afterwards_;
};

}  // namespace

void add_disturbance(Scope& scope, const Planted& planted, Disturbances& to) { Disturber(scope, planted, to).run(); }

}  // namespace tailor::fuzz
