// Numbers on the GPU: what each element type is computed in, and the functions of one number.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../tail.h"

namespace tailor::cuda {

__device__ __forceinline__ float widen(float value) { return value; }
__device__ __forceinline__ double widen(double value) { return value; }
__device__ __forceinline__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float widen(__half value) { return __half2float(value); }

template <class T>
using Compute = decltype(widen(T()));

__device__ __forceinline__ void narrow(float value, float& out) { out = value; }
__device__ __forceinline__ void narrow(double value, double& out) { out = value; }
__device__ __forceinline__ void narrow(float value, __nv_bfloat16& out) { out = __float2bfloat16_rn(value); }
__device__ __forceinline__ void narrow(float value, __half& out) { out = __float2half_rn(value); }

// Two numbers of 16 bits in a register. Opaque, or the compiler packs late and unpacks early, and wins no register.
__device__ __forceinline__ std::uint32_t pack(float a, float b, __nv_bfloat16) {
  std::uint32_t bits;
  asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(b), "f"(a));
  return bits;
}
__device__ __forceinline__ std::uint32_t pack(float a, float b, __half) {
  std::uint32_t bits;
  asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(b), "f"(a));
  return bits;
}
__device__ __forceinline__ float2 unpack(std::uint32_t bits, __nv_bfloat16) {
  asm volatile("" : "+r"(bits));
  return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};  // an instruction each
}
__device__ __forceinline__ float2 unpack(std::uint32_t bits, __half) {
  asm volatile("" : "+r"(bits));
  return __half22float2(reinterpret_cast<const __half2&>(bits));
}

// One instruction each. They flush what is below 2^-126 to zero.
__device__ __forceinline__ float quick_exp2(float value) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(value));
  return out;
}
__device__ __forceinline__ float quick_reciprocal(float value) {
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(value));
  return out;
}

__device__ __forceinline__ float quick_inverse_root(float value) {
  float out;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(value));
  return out;
}

// factor / sqrt(var + eps), rounded once: it stands in every value of a column, where its error would be no noise but a
// tilt. `low` are the digits that each step lost. Wants eps above 1e-30, that nothing is flushed to zero.
__device__ __forceinline__ float scale_of(float var, float eps, float factor) {
  const float sum = var + eps;
  const float sum_low = eps - (sum - var);
  const float root = quick_inverse_root(sum);
  const float product = sum * root;
  const float product_low = fmaf(sum, root, -product);
  float off = fmaf(-product, root, 1.0f);  // 1 - sum · root²
  off = fmaf(-product_low, root, off);
  off = fmaf(-sum_low * root, root, off);
  const float root_low = 0.5f * off * root;
  const float scaled = root * factor;
  const float scale = scaled + fmaf(root_low, factor, fmaf(root, factor, -scaled));
  return isfinite(scale) ? scale : scaled;
}
__device__ __forceinline__ double scale_of(double var, double eps, double factor) { return factor / sqrt(var + eps); }

// A product that is rounded, whatever is done with it.
struct RoundedProduct {
  static __device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
  static __device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }
};

// Division by a number, as eager does it on the GPU: a multiplication.
template <class F>
struct ByReciprocal {
  F reciprocal;
  __device__ __forceinline__ F operator()(F value) const { return value * reciprocal; }
};

// Sigmoid is the reciprocal of 1 + e^-v, but from 2^126 on that is flushed to zero: so it is a quarter of the reciprocal of a
// quarter of that. Where e^-v is infinite, v < -88.72, sigmoid is 0, as eager's.
constexpr float quarter = 0.25f;
constexpr float log2_e = 1.4426950408889634f;

// For 16-bit elements, which keep 11 bits of it: off by 2^-20 of the result or by 2^-142, whichever is more.
struct QuickMath : RoundedProduct {
  static __device__ __forceinline__ float rounded(float v) { return v; }
  static __device__ __forceinline__ auto divisor(float d) { return ByReciprocal<float>{1 / d}; }
  static __device__ __forceinline__ float sigmoid(float v) {
    return quarter * quick_reciprocal(quarter + quick_exp2(fmaf(v, -log2_e, -2.0f)));
  }
  static __device__ __forceinline__ float swish(float v) { return v * sigmoid(v); }
  static __device__ __forceinline__ float inverse_deviation(float var, float eps) {
    return quick_inverse_root(var + eps);
  }
};

// For float32 and float64: to the last bit or two, as eager's. In float32 off by 2^-22 of the result or by 2^-148.
struct ExactMath : RoundedProduct {
  template <class F>
  static __device__ __forceinline__ F rounded(F v) {
    return v;
  }
  template <class F>
  static __device__ __forceinline__ auto divisor(F d) {
    return ByReciprocal<F>{1 / d};
  }
  // A quarter of 1 + e^-v. e^-v is 2^n · 2^r, and n + 125 the exponent of a quarter of 2^n; where n is held to have one, r is large.
  static __device__ __forceinline__ float quarter_of_one_plus(float v) {
    constexpr float least = -124, most = 128;
    const float place = __saturatef(fmaf(v, -log2_e / (most - least), -least / (most - least)));
    const float bits = __fmaf_rd(place, most - least, 0x1.8p23f + 1);  // whose low ones are n + 125
    const float n = bits - (0x1.8p23f + 1 - least);
    const float r = fmaf(v, -0x1.4ae0cp-26f, fmaf(v, -log2_e, -n));
    return fmaf(quick_exp2(r), __int_as_float(__float_as_int(bits) << 23), quarter);
  }
  static __device__ __forceinline__ float sigmoid(float v) {
    const float one_plus = quarter_of_one_plus(v);
    const float quick = quick_reciprocal(one_plus);
    const float right = fmaf(quick, fmaf(-one_plus, quick, 1.0f), quick);  // one step of Newton's
    return one_plus >= 0x1p126f ? 0.0f : quarter * right;
  }
  static __device__ __forceinline__ double sigmoid(double v) { return 1.0 / (1.0 + exp(-v)); }
  // A quotient, which is rounded once; a product with the sigmoid would be rounded twice.
  static __device__ __forceinline__ float swish(float v) {
    const float one_plus = quarter_of_one_plus(v);
    const float reciprocal = quick_reciprocal(one_plus);
    const float quick = v * reciprocal;
    const float right = fmaf(reciprocal, fmaf(-one_plus, quick, v), quick);
    if (v > 87.0f) return v;  // infinity among them
    return one_plus >= 0x1p126f ? v * 0.0f : quarter * right;
  }
  static __device__ __forceinline__ double swish(double v) { return v / (1.0 + exp(-v)); }
  template <class F>
  static __device__ __forceinline__ F inverse_deviation(F var, F eps) {
    return scale_of(var, eps, F(1));
  }
};

template <class T>
struct MathOf {
  using type = ExactMath;
};
template <>
struct MathOf<__nv_bfloat16> {
  using type = QuickMath;
};
template <>
struct MathOf<__half> {
  using type = QuickMath;
};

}  // namespace tailor::cuda
