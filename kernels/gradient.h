// The derivative of a formula, by running it backwards. Folding a formula with `Taped` leaves a tree of nodes, each with
// its value and its operands; `backward(gradient, sink)` of the last one walks it from the result to the leaves, and tells
// the sink what arrives there:
//
//   sink.linear(g)               at y, once for each time that the formula reads it
//   sink.vector<i>(g)            at vector i, a tile still to be summed over the rows
//   sink.norm(node, g)           at the norm's result; gives the gradient of what the norm reads
//   sink.normed(g)               the same where only `After` is run backwards (kernels/split.h)
//
// The tree is known at compile time and dissolves into registers.
#pragma once
#include <cstdint>

#include "arithmetic.h"

namespace tailor {

// A batch norm with batch statistics needs two sums over all rows before it can give any gradient of y: there are two phases.
enum class Phase : std::uint8_t {
  whole,
  norm_sums,   // only the sums that belong to the norm and to what follows it
  before_norm  // the gradient of y, from the norm's sums, and the sums that belong to what stands before it
};

// The sums over rows that a backward can make.
template <class Chain>
struct Sums {
  static constexpr int bias = 0;
  static constexpr int vector = 1;
  static constexpr int norm_weight = vector + vectors_of<Chain>;
  static constexpr int norm_bias = norm_weight + 1;
  static constexpr int count = has_batch_norm<Chain> || has_group_norm<Chain> ? norm_bias + 1 : norm_weight;
};

// Whether a phase makes the sum of a vector.
template <class Chain>
constexpr bool makes_vector(Phase phase, int vector) {
  return phase == Phase::whole || (phase == Phase::norm_sums) == is_after_norm<Chain>(vector);
}
// A number at namespace scope, for device code.
template <class Chain, Phase phase, int vector>
inline constexpr bool makes = makes_vector<Chain>(phase, vector);

namespace tape {

template <class V>
struct Linear {
  V value;
  template <class G, class Sink>
  TAILOR_INLINE void backward(const G& g, Sink& sink) const {
    sink.linear(g);
  }
};

// Stands for the norm's result in `After`.
template <class V>
struct Normed {
  V value;
  template <class G, class Sink>
  TAILOR_INLINE void backward(const G& g, Sink& sink) const {
    sink.normed(g);
  }
};

template <class V, int index>
struct Vector {
  V value;
  template <class G, class Sink>
  TAILOR_INLINE void backward(const G& g, Sink& sink) const {
    sink.template vector<index>(g);
  }
};

template <class F>
struct Number {
  F value;
  template <class G, class Sink>
  TAILOR_INLINE void backward(const G&, Sink&) const {}
};

template <class V, class A, class B>
struct Add {
  V value;
  A left;
  B right;
  template <class G, class Sink>
  TAILOR_INLINE void backward(const G& g, Sink& sink) const {
    left.backward(g, sink);
    right.backward(g, sink);
  }
};

template <class V, class A, class B>
struct Mul {
  V value;
  A left;
  B right;
  template <class G, class Sink>
  TAILOR_INLINE void backward(const G& g, Sink& sink) const {
    const auto times = [](auto a, auto b) { return a * b; };
    left.backward(map(g, times, right.value), sink);
    right.backward(map(g, times, left.value), sink);
  }
};

template <class Math, class V, class A, class B>
struct Div {
  V value;
  A left;
  B right;
  template <class G, class Sink>
  TAILOR_INLINE void backward(const G& g, Sink& sink) const {
    const auto of_left = Arithmetic<Math>().div(g, right.value);
    left.backward(of_left, sink);
    right.backward(map(
                       of_left, [](auto a, auto v) { return -a * v; }, value),
                   sink);
  }
};

template <class V, class A>
struct Sigmoid {
  V value;
  A operand;
  template <class G, class Sink>
  TAILOR_INLINE void backward(const G& g, Sink& sink) const {
    operand.backward(map(
                         g, [](auto a, auto s) { return a * s * (1 - s); }, value),
                     sink);
  }
};

template <class V, class A>
struct Swish {
  V value;
  V sigmoid;
  A operand;
  template <class G, class Sink>
  TAILOR_INLINE void backward(const G& g, Sink& sink) const {
    // s · (1 + v · (1 - s)), where v · s is known.
    const auto slope = [](auto a, auto s, auto w) { return a * (s + w * (1 - s)); };
    operand.backward(map(g, slope, sigmoid, value), sink);
  }
};

template <class V, class A, class Found>
struct Norm {
  V value;
  A operand;
  Found found;
  template <class G, class Sink>
  TAILOR_INLINE void backward(const G& g, Sink& sink) const {
    operand.backward(sink.norm(*this, g), sink);
  }
};

}  // namespace tape

// Interprets a formula through `Base`, an interpreter of values that also has found(v), what the chain's norm finds out about
// a tile, and norm(v, found), its result.
template <class Chain, class Math, class Base>
struct Taped {
  Base& base;

  TAILOR_INLINE auto linear() {
    auto value = base.linear();
    return tape::Linear<decltype(value)>{value};
  }
  TAILOR_INLINE auto normed() {
    auto value = base.normed();
    return tape::Normed<decltype(value)>{value};
  }
  template <class V>
  TAILOR_INLINE auto vector(V v) {
    auto value = base.vector(v);
    return tape::Vector<decltype(value), position_of<Chain, V>>{value};
  }
  template <class S>
  TAILOR_INLINE auto scalar(S s) {
    auto value = base.scalar(s);
    return tape::Number<decltype(value)>{value};
  }
  template <class A, class B>
  TAILOR_INLINE auto add(const A& a, const B& b) {
    auto value = base.add(a.value, b.value);
    return tape::Add<decltype(value), A, B>{value, a, b};
  }
  template <class A, class B>
  TAILOR_INLINE auto mul(const A& a, const B& b) {
    auto value = base.mul(a.value, b.value);
    return tape::Mul<decltype(value), A, B>{value, a, b};
  }
  template <class A, class B>
  TAILOR_INLINE auto div(const A& a, const B& b) {
    auto value = base.div(a.value, b.value);
    return tape::Div<Math, decltype(value), A, B>{value, a, b};
  }
  template <class A>
  TAILOR_INLINE auto sigmoid(const A& a) {
    auto value = base.sigmoid(a.value);
    return tape::Sigmoid<decltype(value), A>{value, a};
  }
  template <class A>
  TAILOR_INLINE auto swish(const A& a) {
    auto sigmoid = base.sigmoid(a.value);
    auto value = base.mul(a.value, sigmoid);
    return tape::Swish<decltype(value), A>{value, sigmoid, a};
  }
  template <class A>
  TAILOR_INLINE auto batch_norm(const A& a) {
    return norm(a);
  }
  template <class A>
  TAILOR_INLINE auto group_norm(const A& a) {
    return norm(a);
  }
  template <class A>
  TAILOR_INLINE auto norm(A a) {
    a.value = base.rounded(a.value);
    auto found = base.found(a.value);
    auto value = base.norm(a.value, found);
    return tape::Norm<decltype(value), A, decltype(found)>{value, a, found};
  }
};

}  // namespace tailor
