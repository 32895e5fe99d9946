// How a number becomes two halves, and what is found out about a row on the way. One place for rows and for columns.
#pragma once
#include <cuda_fp16.h>

#include "../cuda/memory.cuh"
#include "halves.h"

namespace tailor::hopper {

constexpr int packet = 4;  // numbers that a thread reads and writes at a time

constexpr float infinity = __builtin_huge_valf();
// Numbers of magnitude 2^14 … 2^15 are a row's largest.
constexpr int top_exponent = 14;
// Where 2^e is the largest number's power: no product of two such rows, and no sum of them, leaves float's range, in eager
// neither. The main kernel multiplies sums by 2^(e - 14).
constexpr int least_exponent = -76;
constexpr int most_exponent = 48;
// A number whose rest is more than that share of it is one that two halves do not hold.
constexpr float held = 1.0f / (1 << 23);
// 2^15, the most that a number of the other row can be, over the share of a result that may be lost: 2^-23.
constexpr float doubt_of_rest = 32768.0f * (1 << 23);
// Stands for the rest of a number that is zero once it is scaled. Enough to doubt a sum of zero; any other is far above.
constexpr float rest_of_nothing = 0x1p-149f;
// A number of at least that much may decide a result.
constexpr float strong = 4;
// The last digit of a whole number of 24 bits whose first is 2^14.
constexpr float last_digit = 1.0f / 512;

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
  int strong = 0;
  float rest = 0;         // of numbers that are not held, summed up
  bool has_low = false;   // a lower half is not zero
  bool has_rest = false;  // two halves do not hold a number to its last digit
  bool is_whole = true;   // all are multiples of last_digit
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
      const bool is_nothing = scaled[at] == 0 && values.at[i + at] != 0;
      if (is_nothing || rest[at] > held * fabsf(scaled[at])) found.rest += fmaxf(rest[at], rest_of_nothing);
      found.strong += fabsf(scaled[at]) >= strong ? 1 : 0;
      found.has_low |= missing[at] != 0.0f;
      found.has_rest |= rest[at] != 0.0f;
      found.is_whole &= scaled[at] / last_digit == rintf(scaled[at] / last_digit);
    }
  }
  *reinterpret_cast<uint2*>(high) = reinterpret_cast<const uint2&>(highs);
  *reinterpret_cast<uint2*>(low) = reinterpret_cast<const uint2&>(lows);
}

__device__ __forceinline__ RowFacts facts_from(const Found& found, std::uint32_t largest, const Scale& scale) {
  if (largest == 0) return {scale.down, -infinity, infinity, 0};
  if (!scale.usable) return {scale.down, infinity, 0, 0};
  const float short_of_digits = !found.is_whole  ? 0
                                : found.has_rest ? all_short
                                : found.has_low  ? some_short
                                                 : none_short;
  return {scale.down, found.rest * doubt_of_rest, static_cast<float>(found.strong), short_of_digits};
}

// Of a warp.
__device__ __forceinline__ void gather(Found& found) {
  found.strong = static_cast<int>(__reduce_add_sync(~0u, static_cast<unsigned>(found.strong)));
  for (int other = 16; other > 0; other /= 2) found.rest += __shfl_xor_sync(~0u, found.rest, other);
  found.has_low = __any_sync(~0u, found.has_low);
  found.has_rest = __any_sync(~0u, found.has_rest);
  found.is_whole = __all_sync(~0u, found.is_whole);
}

// By kernels in files of their own: of the matrices that are stored by rows, and of those that are transposed.
const char* split_by_rows(const Halves& halves, cudaStream_t stream);
const char* split_by_columns(const Halves& halves, cudaStream_t stream);

}  // namespace tailor::hopper
