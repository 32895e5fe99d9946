// A formula seen from its norm: what is computed before it, and what after. A kernel that holds everything that a norm
// takes together (a group of a row, in registers) folds the whole formula at once. One that does not (batch statistics,
// groups wider than the registers) folds `Before` in a pass of its own, and `After` once it knows the statistics.
#pragma once
#include "formula.h"

namespace tailor {
namespace formula {

// Stands in `After` where the norm stood; its interpreter needs one more member, normed().
struct Normed : Expression {
  template <class Interpreter>
  static constexpr auto fold(Interpreter& f) {
    return f.normed();
  }
};

// before: what the norm reads, the formula itself where there is none. after: the formula with Normed for the norm.
template <class E>
struct Split {  // a leaf
  static constexpr bool batch_norm = false, group_norm = false;
  using Before = E;
  using After = E;
};

template <class A>
struct Split<BatchNorm<A>> {
  static constexpr bool batch_norm = true, group_norm = false;
  using Before = A;
  using After = Normed;
};

template <class A>
struct Split<GroupNorm<A>> {
  static constexpr bool batch_norm = false, group_norm = true;
  using Before = A;
  using After = Normed;
};

template <template <class> class Node, class A>
struct Split<Node<A>> {
  static constexpr bool batch_norm = Split<A>::batch_norm, group_norm = Split<A>::group_norm;
  using Before = std::conditional_t<batch_norm || group_norm, typename Split<A>::Before, Node<A>>;
  using After = Node<typename Split<A>::After>;
};

template <template <class, class> class Node, class L, class R>
struct Split<Node<L, R>> {
  static constexpr bool in_left = Split<L>::batch_norm || Split<L>::group_norm;
  static constexpr bool batch_norm = Split<L>::batch_norm || Split<R>::batch_norm;
  static constexpr bool group_norm = Split<L>::group_norm || Split<R>::group_norm;
  using Before = std::conditional_t<batch_norm || group_norm,
                                    typename std::conditional_t<in_left, Split<L>, Split<R>>::Before, Node<L, R>>;
  using After = Node<typename Split<L>::After, typename Split<R>::After>;
};

}  // namespace formula

template <class Chain>
using Split = formula::Split<Formula<Chain>>;
template <class Chain>
using Before = typename Split<Chain>::Before;
template <class Chain>
using After = typename Split<Chain>::After;
template <class Chain>
inline constexpr bool has_batch_norm = Split<Chain>::batch_norm;
template <class Chain>
inline constexpr bool has_group_norm = Split<Chain>::group_norm;

// Which operand a name is: the first vector of the formula is vector 0, the first number is number 0.
namespace formula {

struct Count {
  int vectors = 0, scalars = 0;
  std::string_view wanted;
  int found = -1;

  constexpr int linear() { return 0; }
  constexpr int normed() { return 0; }
  template <class V>
  constexpr int vector(V) {
    if (V::name.view() == wanted) found = vectors;
    return vectors++;
  }
  template <class S>
  constexpr int scalar(S) {
    if (S::name.view() == wanted) found = scalars;
    return scalars++;
  }
  constexpr int add(int, int) { return 0; }
  constexpr int mul(int, int) { return 0; }
  constexpr int div(int, int) { return 0; }
  constexpr int sigmoid(int) { return 0; }
  constexpr int swish(int) { return 0; }
  constexpr int batch_norm(int) { return 0; }
  constexpr int group_norm(int) { return 0; }
};

template <class F>
constexpr Count count(std::string_view wanted = {}) {
  Count counter;
  counter.wanted = wanted;
  F::fold(counter);
  return counter;
}

}  // namespace formula

template <class Chain>
inline constexpr int vectors_of = formula::count<Formula<Chain>>().vectors;
template <class Chain>
inline constexpr int scalars_of = formula::count<Formula<Chain>>().scalars;
// Numbers at namespace scope: device code cannot read a name, nor what a function local derives from it (nvcc 13.0).
template <class Chain, class Named>
inline constexpr int position_of = formula::count<Formula<Chain>>(Named::name.view()).found;

namespace formula {

// The same walk, for one vector: whether it stands behind the norm.
template <class Before>
struct Behind : Count {
  int vector_number = 0;
  bool behind = false;

  template <class V>
  constexpr int vector(V) {
    if (vectors == vector_number) behind = count<Before>(V::name.view()).found < 0;
    return vectors++;
  }
};

}  // namespace formula

template <class Chain>
constexpr bool is_after_norm(int vector) {
  formula::Behind<Before<Chain>> walk;
  walk.vector_number = vector;
  Formula<Chain>::fold(walk);
  return walk.behind;
}

}  // namespace tailor
