// Vectors of the machine, as wide as its instructions are, and how elements come into them from memory and back.
//
// Every file that includes this is compiled once for each set of instructions, under a TAILOR_ISA of its own, and only one
// of these is ever run. Nothing here may therefore leave a function behind that goes by the same name in two of them: the
// linker would keep one, perhaps the one that this machine cannot run. So everything lives in a namespace called after the
// instructions, and what is shared with other files (kernels/arithmetic.h) is always inlined.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../arithmetic.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if !defined(TAILOR_ISA)
#error "this file is compiled through isa.cpp.in"
#endif

namespace tailor::cpu::TAILOR_ISA {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
inline constexpr int vector_bytes = 32;
#else
inline constexpr int vector_bytes = 16;
#endif

template <class E, int Count>
struct PackOf {
  // NOLINTNEXTLINE(modernize-use-using): using takes no attribute
  typedef E type __attribute__((vector_size(Count * sizeof(E))));
};
template <class E, int Count>
using Pack = typename PackOf<E, Count>::type;

template <class F>
inline constexpr int lanes = vector_bytes / static_cast<int>(sizeof(F));
template <class F>
using Lanes = Pack<F, lanes<F>>;

// The integers that are as wide.
template <class F>
struct IntegerOf;
template <>
struct IntegerOf<float> {
  using type = std::int32_t;
};
template <>
struct IntegerOf<double> {
  using type = std::int64_t;
};
template <class F>
using Integers = Lanes<typename IntegerOf<F>::type>;
template <class F>
using Bits = Lanes<std::make_unsigned_t<typename IntegerOf<F>::type>>;  // sums of these may run over

template <class To, class From>
TAILOR_INLINE To bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

template <class F>
TAILOR_INLINE Lanes<F> all(F value) {
  return value - Lanes<F>{};  // the sign of a zero stays, which 0 + value would lose
}

// The larger, the smaller; `value` where that is NaN.
template <class V>
TAILOR_INLINE V at_least(V bound, V value) {
  return bound > value ? bound : value;
}
template <class V>
TAILOR_INLINE V at_most(V bound, V value) {
  return bound < value ? bound : value;
}
// One instruction each, which gcc does not find by itself.
#if defined(__AVX512F__)
TAILOR_INLINE Lanes<float> at_least(Lanes<float> bound, Lanes<float> value) { return _mm512_max_ps(bound, value); }
TAILOR_INLINE Lanes<float> at_most(Lanes<float> bound, Lanes<float> value) { return _mm512_min_ps(bound, value); }
TAILOR_INLINE Lanes<double> at_least(Lanes<double> bound, Lanes<double> value) { return _mm512_max_pd(bound, value); }
TAILOR_INLINE Lanes<double> at_most(Lanes<double> bound, Lanes<double> value) { return _mm512_min_pd(bound, value); }
#elif defined(__AVX2__)
TAILOR_INLINE Lanes<float> at_least(Lanes<float> bound, Lanes<float> value) { return _mm256_max_ps(bound, value); }
TAILOR_INLINE Lanes<float> at_most(Lanes<float> bound, Lanes<float> value) { return _mm256_min_ps(bound, value); }
TAILOR_INLINE Lanes<double> at_least(Lanes<double> bound, Lanes<double> value) { return _mm256_max_pd(bound, value); }
TAILOR_INLINE Lanes<double> at_most(Lanes<double> bound, Lanes<double> value) { return _mm256_min_pd(bound, value); }
#elif defined(__x86_64__)
TAILOR_INLINE Lanes<float> at_least(Lanes<float> bound, Lanes<float> value) { return _mm_max_ps(bound, value); }
TAILOR_INLINE Lanes<float> at_most(Lanes<float> bound, Lanes<float> value) { return _mm_min_ps(bound, value); }
TAILOR_INLINE Lanes<double> at_least(Lanes<double> bound, Lanes<double> value) { return _mm_max_pd(bound, value); }
TAILOR_INLINE Lanes<double> at_most(Lanes<double> bound, Lanes<double> value) { return _mm_min_pd(bound, value); }
#endif

// Whether a lane is NaN.
template <class V>
TAILOR_INLINE bool has_nan(V value) {
  bool found = false;
  for (std::size_t i = 0; i < sizeof value / sizeof value[0]; ++i) found = found || value[i] != value[i];
  return found;
}
#if defined(__AVX512F__)
TAILOR_INLINE bool has_nan(Lanes<float> v) { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0; }
TAILOR_INLINE bool has_nan(Lanes<double> v) { return _mm512_cmp_pd_mask(v, v, _CMP_UNORD_Q) != 0; }
#elif defined(__AVX2__)
TAILOR_INLINE bool has_nan(Lanes<float> v) { return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0; }
TAILOR_INLINE bool has_nan(Lanes<double> v) { return _mm256_movemask_pd(_mm256_cmp_pd(v, v, _CMP_UNORD_Q)) != 0; }
#elif defined(__x86_64__)
TAILOR_INLINE bool has_nan(Lanes<float> v) { return _mm_movemask_ps(_mm_cmpunord_ps(v, v)) != 0; }
TAILOR_INLINE bool has_nan(Lanes<double> v) { return _mm_movemask_pd(_mm_cmpunord_pd(v, v)) != 0; }
#endif

// Element types: how they lie in memory, and what they are computed in.
struct BFloat16;
struct Float16;

template <class T>
struct Elements {
  using Raw = T;
  using Compute = T;
  static TAILOR_INLINE Lanes<T> widen(Lanes<T> raw) { return raw; }
  static TAILOR_INLINE Lanes<T> narrow(Lanes<T> value) { return value; }
};

using Words = Pack<std::uint32_t, lanes<float>>;
using HalfWords = Pack<std::uint16_t, lanes<float>>;

// 16 bits to 32, and the low 16 of 32.
TAILOR_INLINE Words extended(HalfWords raw) {
#if defined(__AVX512F__)
  return bits_of<Words>(_mm512_cvtepu16_epi32(bits_of<__m256i>(raw)));
#elif defined(__AVX2__)
  return bits_of<Words>(_mm256_cvtepu16_epi32(bits_of<__m128i>(raw)));
#else
  return __builtin_convertvector(raw, Words);
#endif
}
TAILOR_INLINE HalfWords low_halves(Words words) {
#if defined(__AVX512F__)
  return bits_of<HalfWords>(_mm512_cvtepi32_epi16(bits_of<__m512i>(words)));
#else
  return __builtin_convertvector(words, HalfWords);
#endif
}

// Rounded to nearest, ties to even; NaN stays NaN.
template <>
struct Elements<BFloat16> {
  using Raw = std::uint16_t;
  using Compute = float;
  static TAILOR_INLINE Lanes<float> widen(HalfWords raw) { return bits_of<Lanes<float>>(extended(raw) << 16); }
  static TAILOR_INLINE HalfWords narrow(Lanes<float> value) {
    const Words bits = bits_of<Words>(value);
    const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return low_halves(value == value ? rounded : Words{} + 0x7fc0);
  }
};

template <>
struct Elements<Float16> {
  using Raw = std::uint16_t;
  using Compute = float;
#if defined(__AVX512F__)
  static TAILOR_INLINE Lanes<float> widen(HalfWords raw) { return _mm512_cvtph_ps(bits_of<__m256i>(raw)); }
  static TAILOR_INLINE HalfWords narrow(Lanes<float> value) {
    return bits_of<HalfWords>(_mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__F16C__)
  static TAILOR_INLINE Lanes<float> widen(HalfWords raw) { return _mm256_cvtph_ps(bits_of<__m128i>(raw)); }
  static TAILOR_INLINE HalfWords narrow(Lanes<float> value) {
    return bits_of<HalfWords>(_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
#else
  static TAILOR_INLINE Lanes<float> widen(HalfWords raw) {
    const Words half = extended(raw);
    const Words size = half & 0x7fff;
    const Words shifted = (size << 13) + (112u << 23);  // with float's bias
    const Words special = shifted + (112u << 23);       // infinity and NaN
    const auto tiny = __builtin_convertvector(bits_of<Integers<float>>(size), Lanes<float>) * 0x1p-24f;  // subnormal
    Words bits = size >= 0x7c00 ? special : shifted;
    bits = size < 0x400 ? bits_of<Words>(tiny) : bits;
    return bits_of<Lanes<float>>(bits | ((half & 0x8000) << 16));
  }
  static TAILOR_INLINE HalfWords narrow(Lanes<float> value) {
    const Words bits = bits_of<Words>(value);
    const Words size = bits & 0x7fffffff;
    const Words usual = (size + 0xfff + ((size >> 13) & 1) - (112u << 23)) >> 13;
    // Subnormal halves are multiples of 2^-24, the distance between floats from 1/2 to 1: adding 1/2 rounds to them.
    const Words tiny = bits_of<Words>(bits_of<Lanes<float>>(size) + 0.5f) - 0x3f000000u;
    const Words special = bits_of<Words>(value != value) & 0x200;  // NaN is quiet
    Words half = size < (113u << 23) ? tiny : usual;
    half = size >= 0x477ff000u ? special + 0x7c00 : half;
    return low_halves(half | ((bits >> 16) & 0x8000));
  }
#endif
};

template <class T>
using Raw = typename Elements<T>::Raw;
template <class T>
using Compute = typename Elements<T>::Compute;

// All the lanes, from any address.
template <class T>
TAILOR_INLINE Lanes<Compute<T>> load(const Raw<T>* from) {
  Pack<Raw<T>, lanes<Compute<T>>> raw;
  __builtin_memcpy(&raw, from, sizeof raw);
  return Elements<T>::widen(raw);
}
template <class T>
TAILOR_INLINE void store(Raw<T>* to, Lanes<Compute<T>> value) {
  const Pack<Raw<T>, lanes<Compute<T>>> raw = Elements<T>::narrow(value);
  __builtin_memcpy(to, &raw, sizeof raw);
}

// The first `count` lanes, fewer than all; the others are 0.
template <class T>
TAILOR_INLINE Lanes<Compute<T>> load(const Raw<T>* from, int count) {
  Raw<T> buffer[lanes<Compute<T>>] = {};
  for (int i = 0; i < count; ++i) buffer[i] = from[i];
  return load<T>(buffer);
}
template <class T>
TAILOR_INLINE void store(Raw<T>* to, Lanes<Compute<T>> value, int count) {
  Raw<T> buffer[lanes<Compute<T>>];
  store<T>(buffer, value);
  for (int i = 0; i < count; ++i) to[i] = buffer[i];
}

// `value` in the first `count` lanes, 0 in the others.
template <class F>
TAILOR_INLINE Lanes<F> first(Lanes<F> value, int count) {
  Integers<F> index;
  for (int i = 0; i < lanes<F>; ++i) index[i] = i;
  return index < (Integers<F>{} + count) ? value : Lanes<F>{};
}

// In halves: a fixed order.
template <int Count, class F>
TAILOR_INLINE F sum_of(const F* values) {
  if constexpr (Count == 1) {
    return values[0];
  } else {
    Pack<F, Count / 2> low;
    Pack<F, Count / 2> high;
    __builtin_memcpy(&low, values, sizeof low);
    __builtin_memcpy(&high, values + Count / 2, sizeof high);
    low += high;
    F halves[Count / 2];
    __builtin_memcpy(halves, &low, sizeof low);
    return sum_of<Count / 2>(halves);
  }
}
template <class F>
TAILOR_INLINE F sum(Lanes<F> value) {
  F values[lanes<F>];
  __builtin_memcpy(values, &value, sizeof value);
  return sum_of<lanes<F>>(values);
}

}  // namespace tailor::cpu::TAILOR_ISA
