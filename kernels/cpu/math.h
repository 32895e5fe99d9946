// sigmoid and swish of a vector. e^-v is 2^n · e^r with |r| <= ln 2 / 2, e^r a polynomial; no branch, no table.
//
// float and double, against the exact value: sigmoid and swish are within 2.5 units in the last place, wherever e^-v does not
// overflow. Where it does (v < -88.7, for double -709.7) they are 0, as with eager, for -infinity swish is NaN.
// 16-bit elements are computed in float with a shorter polynomial, right to 17 bits.
#pragma once
#include "lanes.h"

namespace tailor::cpu::TAILOR_ISA {

template <class F>
struct Exponential;

// The polynomials are minimax on |r| <= ln 2 / 2 and give e^-r / 2.
template <>
struct Exponential<float> {
  static constexpr float least = -89, most = 86;  // of v: past them 1 + e^-v is infinite, or 1
  static constexpr float rounder = 0x1.8p23f;     // adding it leaves an integer in the low bits
  static constexpr int mantissa = 23;
  static constexpr float log2_e = 0x1.715476p+0f;
  static constexpr float ln2_high = 0x1.63p-1f;  // times n it is exact
  static constexpr float ln2_low = -0x1.bd0106p-13f;
  static TAILOR_INLINE Lanes<float> polynomial(Lanes<float> r) {  // relative error 2^-28
    Lanes<float> p = all(0.00138141718439f / 2);
    p = p * r - 0.00836892200533f / 2;
    p = p * r + 0.0416684080213f / 2;
    p = p * r - 0.166665189363f / 2;
    p = p * r + 0.499999933333f / 2;
    p = p * r - 0.5f;
    return p * r + 0.5f;
  }
  static TAILOR_INLINE Lanes<float> short_polynomial(Lanes<float> r) {  // 2^-18
    Lanes<float> p = all(0.0414577760404f / 2);
    p = p * r - 0.167914011486f / 2;
    p = p * r + 0.500043935529f / 2;
    p = p * r - 0.999963115155f / 2;
    return p * r + 0.999999252589f / 2;
  }
};

template <>
struct Exponential<double> {
  static constexpr double least = -710, most = 707;
  static constexpr double rounder = 0x1.8p52;
  static constexpr int mantissa = 52;
  static constexpr double log2_e = 0x1.71547652b82fep+0;
  static constexpr double ln2_high = 0x1.62e42fefap-1;
  static constexpr double ln2_low = 0x1.cf79abc9e3b3ap-40;
  static TAILOR_INLINE Lanes<double> polynomial(Lanes<double> r) {  // 2^-58
    Lanes<double> p = all(-0x1.ad652490dc6ffp-27);
    p = p * r + 0x1.28b3e443ff091p-23;
    p = p * r - 0x1.71df473c2a76ep-20;
    p = p * r + 0x1.a01991ee6b12dp-17;
    p = p * r - 0x1.a01a010e9f949p-14;
    p = p * r + 0x1.6c16c187d53eep-11;
    p = p * r - 0x1.11111111315fap-8;
    p = p * r + 0x1.555555554f1dfp-6;
    p = p * r - 0x1.555555555549ep-4;
    p = p * r + 0x1.0000000000010p-2;
    p = p * r - 0.5;
    return p * r + 0.5;
  }
};

// 1 + e^-v; of NaN anything, since its bits get into the exponent.
template <bool Short, class F>
TAILOR_INLINE Lanes<F> one_plus_exp_of_minus(Lanes<F> v) {
  using E = Exponential<F>;
  const Lanes<F> x = at_most(all(E::most), at_least(all(E::least), v));
  const Lanes<F> shifted = E::rounder - x * E::log2_e;
  const Lanes<F> n = shifted - E::rounder;
  Lanes<F> half;  // e^-r / 2 with -x = n ln 2 - r
  if constexpr (Short)
    half = E::short_polynomial(x + n * (E::ln2_high + E::ln2_low));
  else
    half = E::polynomial(x + n * E::ln2_high + n * E::ln2_low);
  // times 2^n, in the exponent's bits. Half of e^-x still fits where e^-x does not, and becomes infinite only now.
  const Bits<F> scaled = bits_of<Bits<F>>(half) + (bits_of<Bits<F>>(shifted) << E::mantissa);
  return bits_of<Lanes<F>>(scaled) * F(2) + F(1);
}

// 1 / d, and NaN where v is.
template <class V>
TAILOR_INLINE V inverse_or_nan(V v, V d) {
  return v == v ? 1 / d : v;
}

// A value that the compiler may not take apart. Not by __builtin_assoc_barrier, for which gcc 12 takes a vector itself apart, lane
// by lane, and puts it together again.
template <class V>
TAILOR_INLINE V rounded_value(V v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#else
  v = __builtin_assoc_barrier(v);
#endif
  return v;
}

struct PlainProduct {
  template <class A, class B>
  static TAILOR_INLINE auto product(A a, B b) {
    return a * b;
  }
};

struct ExactMath : PlainProduct {
  template <class V>
  static TAILOR_INLINE V rounded(V v) {
    return rounded_value(v);
  }
  static TAILOR_INLINE Lanes<float> sigmoid(Lanes<float> v) {
    return inverse_or_nan(v, one_plus_exp_of_minus<false, float>(v));
  }
  static TAILOR_INLINE Lanes<double> sigmoid(Lanes<double> v) {
    return inverse_or_nan(v, one_plus_exp_of_minus<false, double>(v));
  }
  static TAILOR_INLINE Lanes<float> swish(Lanes<float> v) { return v / one_plus_exp_of_minus<false, float>(v); }
  static TAILOR_INLINE Lanes<double> swish(Lanes<double> v) { return v / one_plus_exp_of_minus<false, double>(v); }
};

// For 16-bit elements, which keep 11 bits of it.
struct QuickMath : PlainProduct {
  static TAILOR_INLINE Lanes<float> rounded(Lanes<float> v) { return rounded_value(v); }
  static TAILOR_INLINE Lanes<float> sigmoid(Lanes<float> v) {
    return inverse_or_nan(v, one_plus_exp_of_minus<true, float>(v));
  }
  static TAILOR_INLINE Lanes<float> swish(Lanes<float> v) { return v / one_plus_exp_of_minus<true, float>(v); }
};

template <class T>
struct MathOf {
  using type = ExactMath;
};
template <>
struct MathOf<BFloat16> {
  using type = QuickMath;
};
template <>
struct MathOf<Float16> {
  using type = QuickMath;
};

}  // namespace tailor::cpu::TAILOR_ISA
