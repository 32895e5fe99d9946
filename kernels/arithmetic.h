// Formulas over registers. A `Tile` is what one thread holds of y: a few rows of a few neighbouring columns; `Columns` is
// an operand: one value for each of those columns. All arithmetic on them is elementwise and unrolled, for a GPU's thread
// as for a CPU's vector unit. Nothing here knows either.
#pragma once
#include <type_traits>

#include "split.h"

#if defined(__CUDACC__)
#define TAILOR_INLINE __host__ __device__ __forceinline__
#else
#define TAILOR_INLINE inline __attribute__((always_inline))
#endif
#if defined(__CUDA_ARCH__)
#define TAILOR_UNROLL _Pragma("unroll")
#else
#define TAILOR_UNROLL
#endif

namespace tailor {

template <class F, int Rows, int Width>
struct Tile {
  F at[Rows][Width];
};

template <class F, int Width>
struct Columns {
  F at[Width];
};

// One value per row of a tile: what a norm finds out about it.
template <class F, int Rows>
struct PerRow {
  F at[Rows];
};

template <class F, int Rows, int Width>
TAILOR_INLINE F element(const Tile<F, Rows, Width>& tile, int row, int column) {
  return tile.at[row][column];
}
template <class F, int Width>
TAILOR_INLINE F element(const Columns<F, Width>& columns, int, int column) {
  return columns.at[column];
}
template <class F, int Rows>
TAILOR_INLINE F element(const PerRow<F, Rows>& rows, int row, int) {
  return rows.at[row];
}
template <class F>
TAILOR_INLINE F element(const F& value, int, int) {  // a number
  return value;
}

// op(a, b, ...) for each element of the tile `like`; the others are broadcast to it.
template <class F, int Rows, int Width, class Op, class... Values>
TAILOR_INLINE Tile<F, Rows, Width> map(const Tile<F, Rows, Width>& like, Op op, const Values&... values) {
  Tile<F, Rows, Width> out;
  TAILOR_UNROLL
  for (int row = 0; row < Rows; ++row) {
    TAILOR_UNROLL
    for (int column = 0; column < Width; ++column)
      out.at[row][column] = op(like.at[row][column], element(values, row, column)...);
  }
  return out;
}

// A line of a formula reads the result before it, so one operand at least is a tile.
template <class F, int Rows, int Width, class Op, class Right>
TAILOR_INLINE auto combine(Op op, const Tile<F, Rows, Width>& left, const Right& right) {
  return map(left, op, right);
}
template <class F, int Rows, int Width, class Op, class Left,
          class = std::enable_if_t<!std::is_same_v<Left, Tile<F, Rows, Width>>>>
TAILOR_INLINE auto combine(Op op, const Left& left, const Tile<F, Rows, Width>& right) {
  return map(
      right, [op](F r, F l) { return op(l, r); }, left);
}

// What every interpreter over tiles has in common. `Math` has the device's functions of one number, and how it
// divides many by the same number: Math::divisor(d)(x).
template <class Math>
struct Arithmetic {
  template <class A, class B>
  TAILOR_INLINE auto add(const A& a, const B& b) {
    return combine([](auto x, auto y) { return x + y; }, a, b);
  }
  template <class A, class B>
  TAILOR_INLINE auto mul(const A& a, const B& b) {
    return combine([](auto x, auto y) { return Math::product(x, y); }, a, b);
  }
  template <class A, class B>
  TAILOR_INLINE auto div(const A& a, const B& b) {
    if constexpr (std::is_arithmetic_v<B>) {
      const auto divisor = Math::divisor(b);
      return map(a, [divisor](auto x) { return divisor(x); });
    } else {
      return combine([](auto x, auto y) { return x / y; }, a, b);
    }
  }
  // What a norm reads. The compiler contracts `a * b - mean` into one instruction that does not round the product; but the
  // mean was taken of rounded ones, and where all values of a column are equal the difference has to be zero. On a CPU a
  // barrier keeps it from that; ptxas sees through any, and there it is `product` that is rounded, whatever is done with it.
  template <class A>
  TAILOR_INLINE A rounded(const A& a) {
    return map(a, [](auto x) { return Math::rounded(x); });
  }
  template <class A>
  TAILOR_INLINE A sigmoid(const A& a) {
    return map(a, [](auto x) { return Math::sigmoid(x); });
  }
  template <class A>
  TAILOR_INLINE A swish(const A& a) {
    return map(a, [](auto x) { return Math::swish(x); });
  }
};

// The operands of one chain for the columns that a thread holds.
template <class Chain, class F, int Width>
struct Operands {
  Columns<F, Width> vectors[vectors_of<Chain> ? vectors_of<Chain> : 1];
  F scalars[scalars_of<Chain> ? scalars_of<Chain> : 1];

  template <class V>
  TAILOR_INLINE const Columns<F, Width>& vector(V) const {
    return vectors[position_of<Chain, V>];
  }
  template <class S>
  TAILOR_INLINE F scalar(S) const {
    return scalars[position_of<Chain, S>];
  }
};

// An interpreter's leaves: y, and the operands of its columns. Whoever folds no norm needs no more.
template <class Chain, class Math, class F, int Rows, int Width>
struct Leaves : Arithmetic<Math> {
  using Value = Tile<F, Rows, Width>;
  const Operands<Chain, F, Width>& operands;
  const Value& y;

  TAILOR_INLINE Leaves(const Operands<Chain, F, Width>& o, const Value& value) : operands(o), y(value) {}
  TAILOR_INLINE Value linear() { return y; }
  template <class V>
  TAILOR_INLINE const Columns<F, Width>& vector(V v) {
    return operands.vector(v);
  }
  template <class S>
  TAILOR_INLINE F scalar(S s) {
    return operands.scalar(s);
  }
};

// (v - mean) · scale + bias, as a norm that knows its mean does it. Subtracting first keeps the digits that a mean far
// larger than the spread would cost.
template <class F, int Rows, int Width, class Mean, class Scale>
TAILOR_INLINE Tile<F, Rows, Width> normalise(const Tile<F, Rows, Width>& v, const Mean& mean, const Scale& scale,
                                             const Columns<F, Width>& bias) {
  return map(
      v, [](F x, F m, F s, F b) { return (x - m) * s + b; }, mean, scale, bias);
}
template <class F, int Rows, int Width, class Mean, class Scale>
TAILOR_INLINE Tile<F, Rows, Width> normalise(const Tile<F, Rows, Width>& v, const Mean& mean, const Scale& scale,
                                             const Columns<F, Width>& weight, const Columns<F, Width>& bias) {
  return map(
      v, [](F x, F m, F s, F w, F b) { return (x - m) * s * w + b; }, mean, scale, weight, bias);
}

}  // namespace tailor
