// How an author wrote a chain where that is not the formula's own way. As text, because saved files hold it (the last
// argument of tailor::check): the linear and the transpose of its weight, then what there is to say of single steps.
//
//   addmm:t 2           addmm(b, x, w.t()); step 2 in place
//   matmul_:mT          (x @ w.mT).add_(b)
//   linear silu:3       step 3, a swish, is silu(v), where the formula's own is v * sigmoid(v)
//   linear reversed:2   the operands of step 2 in the other order
//   sum                 linear(x, w) + b
//   mm:t reversed:0     torch.add(b, torch.mm(x, w.t()))
//   mm:transpose,0,-1   torch.mm(x, w.transpose(0, -1))
//   linear apart:1      says nothing of how it was written: other words than another chain's check has (passes/twins.h)
//
// The linear is "linear", "sum", "addmm", "matmul" or "mm"; "sum" and the last two with "_" where the bias is added in place. Empty
// means the formula's own. A library that does not know a word takes it for the formula's own, too.
#pragma once
#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace tailor {

// What transpose is called by its dimensions, in either order but for one. Of a matrix all are one; of a weight that is none they are not.
struct Transpose {
  const char* name;
  std::int64_t first, second;
};
inline constexpr std::array<Transpose, 5> transposes{{{"transpose", 0, 1},
                                                      {"transpose,0,-1", 0, -1},
                                                      {"transpose,-2,1", -2, 1},
                                                      {"transpose,1,-2", 1, -2},  // of a vector both are wrong
                                                      {"transpose,-2,-1", -2, -1}}};

// A spelling with one more word.
inline std::string with_word(std::string_view spelling, std::string_view word) {
  return std::string(spelling.empty() ? "linear" : spelling) + " " + std::string(word);
}

class Spelling {
 public:
  explicit Spelling(std::string_view text) {
    if (text.empty()) return;
    linear_ = text.substr(0, text.find(' '));
    steps_ = text.substr(linear_.size());
    if (const auto colon = linear_.find(':'); colon != std::string_view::npos) {
      transpose_ = linear_.substr(colon + 1);
      linear_ = linear_.substr(0, colon);
    }
  }

  std::string_view linear() const { return linear_; }
  std::string_view transpose() const { return transpose_; }

  bool is_in_place(std::size_t step) const { return says("", step); }
  bool is_silu(std::size_t step) const { return says("silu:", step); }
  bool is_reversed(std::size_t step) const { return says("reversed:", step); }

  // Whether dtypes and shapes come out as the formula's do, for whatever linear takes.
  bool promotes_as_formula() const {
    return linear_ == "linear" && !any_word([](std::string_view word) {
             return word.find_first_not_of("0123456789") == std::string_view::npos;
           });
  }

 private:
  bool says(std::string_view what, std::size_t step) const {
    return any_word([&](std::string_view word) {
      if (!word.starts_with(what)) return false;
      std::size_t number = 0;
      const auto [end, error] = std::from_chars(word.data() + what.size(), word.data() + word.size(), number);
      return error == std::errc() && end == word.data() + word.size() && number == step;
    });
  }

  template <class Predicate>
  bool any_word(const Predicate& is_it) const {
    for (std::string_view rest = steps_; !rest.empty();) {
      rest.remove_prefix(1);  // the blank before a word
      const std::string_view word = rest.substr(0, rest.find(' '));
      if (is_it(word)) return true;
      rest.remove_prefix(word.size());
    }
    return false;
  }

  std::string_view linear_ = "linear";
  std::string_view transpose_;
  std::string_view steps_;  // a blank before each word
};

}  // namespace tailor
