// Writes to what the chain reads, or may read for all that a graph shows.
#include <algorithm>

#include "pass_disturber.h"
#include "pass_parts.h"

namespace tailor::fuzz {
namespace {

using Kind = Attribute::Kind;

}  // namespace

// The chain may read it more than once.
Disturber::Target Disturber::target(const std::string& path) const {
  Target target{path};
  target.computed = !target.is_attribute();
  for (std::size_t i = 0; i < p_.operands.size(); ++i) {
    if (p_.operands[i].path != path) continue;
    target.was_read = target.was_read || i < gap_.read;
    target.computed = target.computed || p_.operands[i].computed;
  }
  return target;
}

Fate Disturber::of_write(const Target& target, bool through_view) const {
  if (noticed_ == Fate::stays) return Fate::stays;
  if (target.computed) return Fate::either;
  if (target.was_read) return Fate::stays;
  return through_view ? Fate::either : Fate::fuses;
}

void Disturber::note_write(const Target& target, bool through_view, const std::string& how) {
  const char* what =
      target.was_read ? "an operand written to after it was read" : "an operand written to before it is read";
  note(of_write(target, through_view), what + how);
}

void Disturber::write() {
  const Target target = any_operand();
  const std::string& path = target.path;
  bool through_view = false;
  std::string how;
  switch (r_.below(7)) {
    case 0:
      put(path + ".copy_(" + path + " * 0.9)");
      break;
    case 1:
      put(path + ".mul_(0.9)");
      break;
    case 2:
      through_view = true;
      // Behind `.data` no version counts: of values that were read before, eager's gradient then mixes old and new ones.
      if (target.was_read)
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
    case 5: {
      const std::string name = s_.fresh("named");
      put_before(name + " = " + path);
      through_view = r_.chance(0.3);
      how = ", by a name";
      if (through_view)  // a loop carries it from turn to turn
        put_under(r_.text({"if self.training:", "for i in range(2):"}), name + " += 0.25");
      else
        put(name + r_.text({".mul_(0.9)", ".add_(0.5)"}));
      break;
    }
    default:
      put(path + ".add_(0.5)");
  }
  note_write(target, through_view, through_view && how.empty() ? ", through a view" : how);
}

void Disturber::write_to_alias() {
  const Target target = any_operand();
  if (!target.is_attribute()) return write();
  const Attribute* original = s_.find(target.attribute());
  if (!original || !original->alias.empty()) return write();
  const auto shape = original->shape;
  Attribute& alias = s_.add("alias", Kind::buffer);
  alias.shape = shape;
  alias.alias = target.attribute();
  alias.silent = r_.chance(0.3);
  if (alias.silent) s_.model.silent_writes = true;
  put("self." + alias.name +
      r_.text({".add_(0.5)", ".mul_(0.9)", ".zero_()", ".mul_(0.9).add_(0.5)", ".view(-1).mul_(0.9)", "[0] = 0.5"}));
  note(noticed_, "an alias of an operand written to");
}

// The tensors of a list, the operand among them: the list is an attribute, or made before the chain and read after it. A list
// that nobody reads TorchScript drops, and with it what is done to its tensors.
void Disturber::write_to_list() {
  const Target target = any_operand();
  std::vector<std::string> all = {target.path};
  if (r_.chance(0.5)) all.insert(all.begin() + static_cast<std::ptrdiff_t>(r_.below(2)), other_buffer());
  s_.model.writes_unseen = true;
  const std::string literal = "[" + all[0] + (all.size() > 1 ? ", " + all[1] : "") + "]";
  const bool is_read = r_.chance(0.9);
  std::string list = literal;
  if (is_read && target.is_attribute() && r_.chance(0.6)) {
    Attribute& attribute = s_.add("all", Kind::tensors);
    for (const std::string& path : all) attribute.holds.push_back(path.substr(5));
    list = "self." + attribute.name;
  } else if (is_read) {
    list = s_.fresh("all");
    put_before(list + " = " + literal);
    put_afterwards("t = t + " + list + "[0].sum()");
  }
  switch (r_.below(6)) {
    case 0:
      put("torch._foreach_add_(" + list + ", " + literal + ")");
      break;
    case 1:
      put("torch._foreach_copy_(" + list + ", torch._foreach_mul(" + list + ", 0.9))");
      break;
    case 2:
      put("torch._foreach_add_(" + list + ", 0.5)");
      break;
    case 3:
      put_under(r_.text({"if self.training:", "for i in range(2):"}), "torch._foreach_add_(" + list + ", 0.25)");
      break;
    default:
      put("torch._foreach_mul_(" + list + ", 0.9)");
  }
  if (!is_read) return note(Fate::either, "an operand in a list that is written to and not read");
  note_write(target, /*through_view=*/true, ", in a list");
}

// The very tensor as another attribute, here or in a submodule.
void Disturber::write_under_another_name() {
  const Target target = any_operand();
  if (!target.is_attribute()) return write_to_submodule();
  std::string path = target.attribute();
  const Attribute* original = s_.find(path);
  while (original && !original->same.empty()) original = s_.find(path = original->same);
  if (!original || !original->alias.empty()) return write_to_submodule();
  const auto& shape = original->shape;
  ClassPtr part;
  if (shape.size() == 2)
    part = linear_part(shape[1], shape[0], /*bias=*/false, /*gradient=*/false);
  else if (shape == std::vector{s_.model.sizes.out})
    part = group_norm_part(s_.model.sizes.out, s_.model.sizes.groups, /*affine=*/true, /*gradient=*/true);
  std::string twin;
  if (part && r_.chance(0.5)) {
    twin = s_.child("twin", part) + ".weight";
    s_.type.children.back().same = path;
  } else {
    twin = s_.another_name(path);
  }
  put("self." + twin + r_.text({".add_(0.5)", ".mul_(0.9)", ".zero_()"}));
  note(noticed_, "an operand written to under another name");
}

// Through what torch's schemas call a new tensor, and is the operand itself.
void Disturber::write_to_what_is_the_same() {
  const Target target = any_operand();
  const std::string& path = target.path;
  const std::string name = s_.fresh("same");
  put_before(name + " = " +
             r_.of<std::string>({"torch.dropout(" + path + ", 0.5, False)", path + ".type_as(" + path + ")",
                                 "torch.atleast_1d(" + path + ")", "torch.conj_physical(" + path + ")",
                                 path + ".sum_to_size(" + path + ".size())", "torch.atleast_1d([" + path + "])[0]"}));
  put(name + r_.text({".add_(0.5)", ".mul_(0.9)", "[0] = 0.5"}));
  note(std::max(noticed_, Fate::either), "an operand written to through an op that returned it");
}

// Through a loop: what it hands on where it takes no turn, or what goes from one of its values to the next.
void Disturber::write_to_what_goes_round() {
  const std::string path = any_operand().path;
  const std::string name = s_.fresh("round");
  const std::string zeros = " = torch.zeros_like(" + path + ")";
  const auto put_loop = [&](const std::string& header, const std::vector<std::string>& body) {
    put_before(header);
    before_.back().flat = s_.number();
    for (const std::string& text : body) before_.back().body.push_back(line(text, 0));
  };
  if (r_.chance(0.5)) {
    put_before(name + " = " + path);
    put_loop("for i in range(x.dim() - x.dim()):", {name + zeros});
  } else {
    const std::string next = s_.fresh("next");
    put_before(name + zeros);
    put_before(next + " = " + name);
    put_loop("for i in range(3):", {name + " = " + next, next + " = " + path});
  }
  put(name + r_.text({".add_(0.5)", ".mul_(0.9)", "[0] = 0.5"}));
  s_.model.writes_unseen = true;
  put_afterwards("t = t + " + name + ".sum()");
  note(std::max(noticed_, Fate::either), "an operand written to through a loop");
}

// What a submodule holds, be it an operand of this chain, of another one or of none.
void Disturber::write_to_submodule() {
  std::vector<std::string> paths;
  for (const std::string& path : s_.paths)
    if (path.find('.') != std::string::npos) paths.push_back("self." + path);
  if (paths.empty()) return write();
  const Target target = this->target(r_.of(paths));
  put(target.path + r_.text({".mul_(0.9)", ".add_(0.5)", "[0] = 0.5"}));
  const bool through_view = here_.back().line.find('[') != std::string::npos;
  note(of_write(target, through_view), "a submodule's tensor written to");
}

void Disturber::assign() {
  if (r_.chance(0.5)) {
    const bool is_number = r_.chance(0.5);
    const std::string name =
        is_number ? s_.value("step", Kind::number, 1.0) : s_.buffer("moving", {s_.model.sizes.out});
    put("self." + name + " = " + (is_number ? "self." + name + " + 1.0" : "(self." + name + " * 0.5 + 0.1).detach()"));
    put_afterwards("t = t + self." + name + (is_number ? "" : ".sum()"));
    return note(noticed_, "an attribute assigned");
  }
  const Target target = any_operand();
  if (!target.is_attribute() || target.attribute().find('.') != std::string::npos) return work();
  put(target.path + " = (" + target.path + " * 0.9).detach()");
  s_.model.assigns_operands = true;
  note(target.computed ? std::max(noticed_, Fate::either) : noticed_, "an operand's attribute assigned");
}

}  // namespace tailor::fuzz
