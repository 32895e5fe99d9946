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

// For float32 and float64: the toolkit's correctly scaled functions, as eager uses them.
struct ExactMath {
  template <class F>
  static __device__ __forceinline__ F divide(F a, F b) {
    return a / b;
  }
  static __device__ __forceinline__ float sigmoid(float v) { return 1.0f / (1.0f + expf(-v)); }
  static __device__ __forceinline__ double sigmoid(double v) { return 1.0 / (1.0 + exp(-v)); }
  static __device__ __forceinline__ float swish(float v) { return v / (1.0f + expf(-v)); }
  static __device__ __forceinline__ double swish(double v) { return v / (1.0 + exp(-v)); }
};

// For 16-bit elements, which keep 11 bits of it: two instructions of the special-function unit, right to 20 bits.
struct QuickMath {
  static __device__ __forceinline__ float divide(float a, float b) { return a / b; }
  static __device__ __forceinline__ float sigmoid(float v) { return __fdividef(1.0f, 1.0f + __expf(-v)); }
  static __device__ __forceinline__ float swish(float v) { return __fdividef(v, 1.0f + __expf(-v)); }
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
