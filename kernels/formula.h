// A chain is one formula: an ordinary expression over `y`, the linear's result.
//
//   struct linear_sigmoid_mul_add {
//     static constexpr auto formula = sigmoid(y) * scalar<"factor"> + y;
//   };
//
// The expression is a type and carries no data. Whoever wants something of it passes an *interpreter* to `fold`, which
// visits the formula in the order in which eager PyTorch computes it, left operand first:
//
//   interpreter.linear()                     y
//   interpreter.vector(vec<"scale">)         a tensor argument that is broadcast against y
//   interpreter.scalar(scalar<"factor">)     a number
//   interpreter.add(a, b)  mul  div          arithmetic
//   interpreter.sigmoid(a) swish(a)          activations, swish(a) = a * sigmoid(a)
//   interpreter.batch_norm(a) group_norm(a)  the norms, with their own arguments
//
// A kernel's interpreter returns floats, `ops/chain.cpp` has one that writes the formula down as a list of steps.
// Nothing here knows torch or CUDA. nvcc deduces no string template arguments and reads no static object in device code
// (both seen with 13.0), so expressions are folded through their type: `Formula<Chain>::fold(interpreter)`.
#pragma once
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace tailor {

// A string that can be a template argument.
template <std::size_t N>
struct Name {
  char text[N]{};
  constexpr Name(const char (&string)[N]) {
    for (std::size_t i = 0; i < N; ++i) text[i] = string[i];
  }
  constexpr std::string_view view() const { return {text, N - 1}; }
};

namespace formula {

struct Expression {};

template <class T>
concept expression = std::derived_from<T, Expression>;

struct Y : Expression {
  template <class Interpreter>
  static constexpr auto fold(Interpreter& f) {
    return f.linear();
  }
};

template <Name N>
struct Vec : Expression {
  static constexpr auto name = N;
  template <class Interpreter>
  static constexpr auto fold(Interpreter& f) {
    return f.vector(Vec{});
  }
};

template <Name N>
struct Scalar : Expression {
  static constexpr auto name = N;
  template <class Interpreter>
  static constexpr auto fold(Interpreter& f) {
    return f.scalar(Scalar{});
  }
};

// The operands are folded in statements of their own because the order in which a call evaluates its arguments is not
// defined, and the order of a formula is the order of its op's arguments.
template <expression L, expression R>
struct Add : Expression {
  template <class Interpreter>
  static constexpr auto fold(Interpreter& f) {
    auto left = L::fold(f);
    auto right = R::fold(f);
    return f.add(left, right);
  }
};

template <expression L, expression R>
struct Mul : Expression {
  template <class Interpreter>
  static constexpr auto fold(Interpreter& f) {
    auto left = L::fold(f);
    auto right = R::fold(f);
    return f.mul(left, right);
  }
};

template <expression L, expression R>
struct Div : Expression {
  template <class Interpreter>
  static constexpr auto fold(Interpreter& f) {
    auto left = L::fold(f);
    auto right = R::fold(f);
    return f.div(left, right);
  }
};

template <expression A>
struct Sigmoid : Expression {
  template <class Interpreter>
  static constexpr auto fold(Interpreter& f) {
    auto value = A::fold(f);
    return f.sigmoid(value);
  }
};

template <expression A>
struct Swish : Expression {
  template <class Interpreter>
  static constexpr auto fold(Interpreter& f) {
    auto value = A::fold(f);
    return f.swish(value);
  }
};

template <expression A>
struct BatchNorm : Expression {
  template <class Interpreter>
  static constexpr auto fold(Interpreter& f) {
    auto value = A::fold(f);
    return f.batch_norm(value);
  }
};

template <expression A>
struct GroupNorm : Expression {
  template <class Interpreter>
  static constexpr auto fold(Interpreter& f) {
    auto value = A::fold(f);
    return f.group_norm(value);
  }
};

}  // namespace formula

// What a chain's formula is written with.
inline constexpr formula::Y y;
template <Name N>
inline constexpr formula::Vec<N> vec;
template <Name N>
inline constexpr formula::Scalar<N> scalar;

namespace formula {
template <expression L, expression R>
constexpr Add<L, R> operator+(L, R) {
  return {};
}
template <expression L, expression R>
constexpr Mul<L, R> operator*(L, R) {
  return {};
}
template <expression L, expression R>
constexpr Div<L, R> operator/(L, R) {
  return {};
}
}  // namespace formula

template <formula::expression A>
constexpr formula::Sigmoid<A> sigmoid(A) {
  return {};
}
template <formula::expression A>
constexpr formula::Swish<A> swish(A) {
  return {};
}
template <formula::expression A>
constexpr formula::BatchNorm<A> batch_norm(A) {
  return {};
}
template <formula::expression A>
constexpr formula::GroupNorm<A> group_norm(A) {
  return {};
}

template <class Chain>
using Formula = std::remove_cv_t<decltype(Chain::formula)>;

}  // namespace tailor
