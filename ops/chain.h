// A chain at run time: its formula as a list of steps, for the layers that work through it one operation after another
// (the reference, the matcher, the rewriter). Derived from the formula in kernels/chains/ and nothing else.
#pragma once
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "../kernels/formula.h"

namespace tailor {

struct Step {
  enum class Kind { linear, vector, scalar, add, mul, div, sigmoid, swish, batch_norm, group_norm };
  Kind kind;
  int left = -1;  // the steps whose results it reads
  int right = -1;
  std::string_view name;  // of a vector or scalar: the op's argument

  bool is_operand() const { return kind == Kind::vector || kind == Kind::scalar; }
  bool is_norm() const { return kind == Kind::batch_norm || kind == Kind::group_norm; }
};

std::string_view to_string(Step::Kind kind);

// The formula's operations in the order in which eager computes them. Step 0 is the linear, the last is the result.
// Every operation but the linear reads the result of the operation before it, so that a chain is a line, not a tree.
struct Chain {
  static constexpr std::size_t max_steps = 16;
  static constexpr std::size_t max_operands = 4;  // and what norms learn: as many as the guards take (ops/guards.cpp)

  std::string_view name;
  std::vector<Step> steps;

  int last() const { return static_cast<int>(steps.size()) - 1; }
};

namespace detail {

// Interprets a formula by writing it down.
class Scribe {
 public:
  explicit Scribe(std::vector<Step>& steps) : steps_(steps) {}
  int linear() { return 0; }
  template <class V>
  int vector(V) {
    return put({Step::Kind::vector, -1, -1, V::name.view()});
  }
  template <class S>
  int scalar(S) {
    return put({Step::Kind::scalar, -1, -1, S::name.view()});
  }
  int add(int a, int b) { return put({Step::Kind::add, a, b, {}}); }
  int mul(int a, int b) { return put({Step::Kind::mul, a, b, {}}); }
  int div(int a, int b) { return put({Step::Kind::div, a, b, {}}); }
  int sigmoid(int a) { return put({Step::Kind::sigmoid, a, -1, {}}); }
  int swish(int a) { return put({Step::Kind::swish, a, -1, {}}); }
  int batch_norm(int a) { return put({Step::Kind::batch_norm, a, -1, {}}); }
  int group_norm(int a) { return put({Step::Kind::group_norm, a, -1, {}}); }

 private:
  int put(Step step) {
    steps_.push_back(step);
    return static_cast<int>(steps_.size()) - 1;
  }
  std::vector<Step>& steps_;
};

// Throws where a formula asks for something that the other layers do not do.
void require_line(const Chain& chain);

}  // namespace detail

template <class C>
Chain describe() {
  Chain chain{C::name, {{Step::Kind::linear, -1, -1, {}}}};
  detail::Scribe scribe(chain.steps);
  Formula<C>::fold(scribe);
  detail::require_line(chain);
  return chain;
}

// The chains that have an op, longest first.
const std::vector<const Chain*>& all_chains();
const Chain* find_chain(std::string_view name);
void add_chain(const Chain& chain);  // called once per op, while the library is loaded

}  // namespace tailor
