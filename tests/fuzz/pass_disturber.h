// One disturbance while it is being put somewhere. Writes are in pass_disturb_writes.cpp, all else in pass_disturb.cpp.
#pragma once
#include "pass_disturb.h"

namespace tailor::fuzz {

class Disturber {
 public:
  Disturber(Scope& scope, const Planted& planted, Disturbances& to);

  void run();

 private:
  Chain& chain() { return s_.model.chains[static_cast<std::size_t>(p_.chain)]; }

  void note(Fate inside, const std::string& what);  // where it stands decides, except inside the chain
  void put(std::string text) { put(here_, std::move(text)); }
  void put_before(std::string text) { put(before_, std::move(text)); }  // before the chain, wherever the rest stands
  void put_afterwards(std::string text) { put(afterwards_, std::move(text)); }
  void put(std::vector<Piece>& into, std::string text) const { into.push_back(line(std::move(text), number_)); }
  void put_under(std::string header, std::string text);

  void second_reader();
  void shape_reader();
  void view();
  void mode();
  void work();

  // What is known of a tensor that may be an operand of the chain.
  struct Target {
    std::string path;
    bool was_read = false;
    bool computed = false;  // also: it is no attribute
    bool is_attribute() const { return path.starts_with("self."); }
    std::string attribute() const { return path.substr(5); }
  };
  Target target(const std::string& path) const;
  Target any_operand() { return target(p_.operands[r_.below(p_.operands.size())].path); }
  Fate of_write(const Target& target, bool through_view) const;
  void note_write(const Target& target, bool through_view, const std::string& how);

  void write();
  void write_to_alias();
  void write_to_list();
  void write_under_another_name();
  void write_to_what_is_the_same();
  void write_to_what_goes_round();
  void write_to_submodule();
  void assign();
  std::string other_buffer() { return "self." + s_.buffer("other", {s_.model.sizes.out}); }

  Scope& s_;
  Random& r_;
  const Planted& p_;
  Disturbances& to_;
  int at_;
  bool inside_;
  Gap gap_;
  Fate noticed_ = Fate::fuses;  // of what can be noticed and stands here
  int number_ = s_.number();
  std::vector<Piece> before_, here_, afterwards_;
};

}  // namespace tailor::fuzz
