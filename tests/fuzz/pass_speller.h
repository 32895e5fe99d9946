// One chain while it is being spelled. Its linear and the order of its steps are in pass_spell.cpp, the steps themselves in
// pass_spell_steps.cpp.
#pragma once
#include "pass_spell.h"

namespace tailor::fuzz {

enum class Step { mul, add, div, sigmoid, residual, swish, batch_norm, group_norm };

struct Rule {
  const char* name;
  std::vector<Step> steps;
};

class Speller {
 public:
  Speller(Scope& scope, std::string input, std::int64_t in, std::string other_input, std::int64_t other_in);

  Planted write(bool twisted);

 private:
  Chain& chain() { return s_.model.chains[static_cast<std::size_t>(out_.chain)]; }
  void stays(const std::string& what) { disturb(chain(), Fate::stays, what); }
  void either(const std::string& what) { disturb(chain(), Fate::either, what); }

  void emit(std::string line);       // a statement, after which the value may be disturbed
  void bind();                       // gives the value a name: the one it had, or another
  void set(std::string expression);  // what the value is now; has no name yet
  void read(const std::string& path, bool computed = false) { out_.operands.push_back({path, computed}); }
  std::string attribute(const char* prefix, std::vector<std::int64_t> shape);  // now and then shared with another chain
  std::string known(const std::string& path);

  void linear();
  std::string transposed(const std::string& w, bool alone);
  void product(const std::string& x, const std::string& w, const std::string& b, bool alone);
  void add_bias(const std::string& b);
  void keep_residual();

  // A step; `twisted`: something like it, that is another formula.
  void step(Step step, bool twisted);
  void arithmetic(const char* name, const char* sign, bool twisted);
  void divide(bool twisted);
  void sigmoid(bool twisted);
  void residual(bool twisted);
  void swish(bool twisted);
  void batch_norm(bool twisted);
  void group_norm(bool twisted);
  void twist_before();  // puts what no rule has before the next step

  struct Number {
    std::string text;
    bool is_tensor = false;
    bool may_be_complex = false;
  };
  std::string vector(const char* prefix);
  std::string wrapped(const std::string& path);
  Number number();
  std::string another_linear();  // of the same shape
  void combine(const char* name, const char* sign, const std::string& other, bool other_is_tensor, bool may_be_complex);
  void write_in_place(const std::string& method, const char* sign, const std::string& other);

  Scope& s_;
  Random& r_;
  Planted out_;
  std::int64_t in_;
  std::string other_input_;
  std::int64_t other_in_;
  std::string name_, value_, residual_;
  bool bound_ = false;
  bool is_residual_ = false;
  bool site_pending_ = false;
  bool before_bias_ = false;
  bool bias_apart_ = false;  // it is added in the statement at hand, the product was made in another
  bool after_norm_ = false;
  bool may_be_complex_ = false;  // the value, of a number
  bool work_inside_ = false;     // the operand at hand is computed where it is read
};

}  // namespace tailor::fuzz
