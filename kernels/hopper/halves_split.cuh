// How a number becomes two halves, and what is found out about a row on the way. One place for rows and for columns.
#pragma once
#include <cuda_fp16.h>

#include "../cuda/memory.cuh"
#include "halves.h"

namespace tailor::hopper {

constexpr int packet = 4;    // numbers that a thread reads and writes at a time

constexpr float infinity = __builtin_huge_valf();
// Numbers of magnitude 2^14 … 2^15 are a row's largest.
constexpr int top_exponent = 14;
// Where 2^e is the largest number's power, the main kernel multiplies sums by 2^(e - 14): these leave float's range nowhere.
constexpr int least_exponent = -76;
constexpr int most_exponent = 94;
// A number whose rest is more than that share of it is one that two halves do not hold.
constexpr float held = 1.0f / (1 << 23);
// 2^15, the most that a number of the other row can be, over the share of a result that may be lost: 2^-23.
constexpr float doubt_of_rest = 32768.0f * (1 << 23);
// Whole numbers of 12 and 13 bits: products of their lower halves, which are left out, are bits of a sum below 2^24.
constexpr float doubt_of_integers = 1073741824.0f;

// A row's power of two, from the bits of its largest magnitude.
struct Scale {
  bool usable;
  float up, down;

  __device__ __forceinline__ explicit Scale(std::uint32_t largest) {
    const int exponent = static_cast<int>(largest >> 23) - 127;
    usable = exponent >= least_exponent && exponent <= most_exponent;
    up = usable ? __uint_as_float(static_cast<std::uint32_t>(127 + top_exponent - exponent) << 23) : 0.0f;
    down = usable ? __uint_as_float(static_cast<std::uint32_t>(127 - top_exponent + exponent) << 23) : 1.0f;
  }
};

// What threads that share a row find out together.
struct Found {
  int nonzero = 0;
  float rest = 0;         // of numbers that are not held, summed up
  bool has_low = false;   // a lower half is not zero
  bool integers = true;   // all are even, in units of the scaled row
};

struct Values {
  float at[packet];
};

__device__ __forceinline__ void look_for_largest(const Values& values, std::uint32_t& largest) {
#pragma unroll
  for (float value : values.at) largest = max(largest, __float_as_uint(value) & 0x7fffffffu);
}

// Two packets of halves, and what is lost.
__device__ __forceinline__ void split(const Values& values, float scale, __half* high, __half* low, Found& found) {
  __half2 highs[packet / 2];
  __half2 lows[packet / 2];
#pragma unroll
  for (int i = 0; i < packet; i += 2) {
    const float a = values.at[i] * scale;
    const float b = values.at[i + 1] * scale;
    highs[i / 2] = __floats2half2_rn(a, b);
    const float2 h = __half22float2(highs[i / 2]);
    const float missing[2] = {a - h.x, b - h.y};
    lows[i / 2] = __floats2half2_rn(missing[0], missing[1]);
    const float2 l = __half22float2(lows[i / 2]);
    const float scaled[2] = {a, b};
    const float rest[2] = {fabsf(missing[0] - l.x), fabsf(missing[1] - l.y)};
#pragma unroll
    for (int at = 0; at < 2; ++at) {
      if (rest[at] > held * fabsf(scaled[at])) found.rest += rest[at];
      found.nonzero += values.at[i + at] != 0.0f ? 1 : 0;
      found.has_low |= missing[at] != 0.0f;
      found.integers &= 0.5f * scaled[at] == rintf(0.5f * scaled[at]);
    }
  }
  *reinterpret_cast<uint2*>(high) = reinterpret_cast<const uint2&>(highs);
  *reinterpret_cast<uint2*>(low) = reinterpret_cast<const uint2&>(lows);
}

__device__ __forceinline__ RowFacts facts_from(const Found& found, std::uint32_t largest, const Scale& scale,
                                               bool is_weight) {
  if (largest == 0) return {scale.down, -infinity, infinity};
  if (!scale.usable) return {scale.down, infinity, 0};
  const float of_integers = is_weight && found.has_low && found.integers ? doubt_of_integers : 0;
  return {scale.down, fmaxf(found.rest * doubt_of_rest, of_integers), static_cast<float>(found.nonzero)};
}

// Of a warp.
__device__ __forceinline__ void gather(Found& found) {
  found.nonzero = static_cast<int>(__reduce_add_sync(~0u, static_cast<unsigned>(found.nonzero)));
  for (int other = 16; other > 0; other /= 2) found.rest += __shfl_xor_sync(~0u, found.rest, other);
  found.has_low = __any_sync(~0u, found.has_low);
  found.integers = __all_sync(~0u, found.integers);
}

// By kernels in files of their own: of the matrices that are stored by rows, and of those that are transposed.
const char* split_by_rows(const Halves& halves, cudaStream_t stream);
const char* split_by_columns(const Halves& halves, cudaStream_t stream);

}  // namespace tailor::hopper
