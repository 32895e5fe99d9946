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
// The higher half of a smaller number is short of digits itself. The product of its lower half with another lower half, which nobody computes,
// may be missed, as if of the number itself were missing 2^-25, the most that the lower half can be, times 2^-11, the other's share of its
// number, and as much because the lower half is short of digits, too. That also stands for numbers that are zero once they are scaled.
constexpr float least_whole_half = 0x1p-14f;
constexpr float rest_of_small = 0x1p-35f;
// 2^15, the most that a number of the other row can be, over the share of a result that may be lost: 2^-23.
constexpr float doubt_of_rest = 32768.0f * (1 << 23);
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

// What there is among a row's numbers, as bits.
using Flags = std::uint32_t;
constexpr Flags some_low = 1;     // a lower half is not zero
constexpr Flags some_rest = 2;    // two halves do not hold a number to its last digit
constexpr Flags some_broken = 4;  // a number is no multiple of last_digit: from then on the others are not looked for
// Numbers of 24 digits, whose power of two is even, or odd. Where there are both, a sum of products with whole numbers is beyond float's
// 24 digits: a way to see `some_broken` that asks nothing of the largest number.
constexpr Flags some_long_even = 8;
constexpr Flags some_long_odd = 16;

__device__ __forceinline__ bool has(Flags flags, Flags which) { return (flags & which) == which; }
__device__ __forceinline__ bool may_be_whole(Flags flags) {
  return !has(flags, some_broken) && !has(flags, some_long_even | some_long_odd);
}

// What threads that share a row find out together.
struct Found {
  __half2 strong{0, 0}, heavy{0, 0};  // how many are; from 2048 on fewer than there are
  float rest = 0;                     // of numbers that are not held, summed up
  Flags flags = 0;
};
// The same of all of them. It lies in shared memory, which nobody initialises.
struct FoundByAll {
  int strong, heavy;
  float rest;
  Flags flags;

  __device__ __forceinline__ void add(const FoundByAll& more) {
    strong += more.strong;
    heavy += more.heavy;
    rest += more.rest;
    flags |= more.flags;
  }
};

struct Values {
  float at[packet];
};

template <bool aligned>
__device__ __forceinline__ Values read(const float* row, int column, int columns) {
  Values out;
  if (aligned && column + packet <= columns) {
    const float4 all = *reinterpret_cast<const float4*>(row + column);
    return {{all.x, all.y, all.z, all.w}};
  }
#pragma unroll
  for (int i = 0; i < packet; ++i) out.at[i] = column + i < columns ? row[column + i] : 0.0f;
  return out;
}

__device__ __forceinline__ void look_for_largest(const Values& values, std::uint32_t& largest) {
#pragma unroll
  for (float value : values.at) largest = max(largest, __float_as_uint(value) & 0x7fffffffu);
}

__device__ __forceinline__ Flags length_of(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  const bool is_long = (bits & 1) != 0 && (bits & 0x7f800000u) != 0;
  return !is_long ? 0 : (bits & 0x00800000u) != 0 ? some_long_odd : some_long_even;
}

// Of a packet's numbers, which are: each 1 or 0.
using Counted = __half2[packet / 2];

// What else is to be found out about numbers, and whether they are whole: here nothing, and by their distance from the row's largest.
struct Plainly {
  static constexpr bool by_length = false;
  __device__ __forceinline__ void count(const Counted&, const Counted&) const {}
  __device__ __forceinline__ void add_rest(int, float) const {}
  // Whether a number was not zero before anything was multiplied.
  __device__ __forceinline__ bool is_there(int, float value) const { return value != 0; }
};

// What ordinary numbers have nothing of: that they are so small that their lower half is short of digits, or whole. Registers are few: what
// the halves are is worked out again.
template <class More>
__device__ __forceinline__ void look_closely(const Values& values, float scale, const Reach& reach, Found& found,
                                             const More& more) {
#pragma unroll
  for (int i = 0; i < packet; ++i) {
    const float scaled = values.at[i] * scale;
    const float missing = scaled - __half2float(__float2half_rn(scaled));
    const float lower = missing * reach.up;
    const float rest = fabsf(lower - __half2float(__float2half_rn(lower))) * reach.down;
    const bool is_small = fabsf(scaled) < least_whole_half && more.is_there(i, values.at[i]);
    if (is_small || rest > held * fabsf(scaled)) {
      const float lost = fmaxf(rest, rest_of_small);
      found.rest += lost;
      more.add_rest(i, lost);
    }
    found.flags |= (missing != 0.0f ? some_low : 0) | (rest != 0.0f ? some_rest : 0);
  }
}

// Two packets of halves, to where the higher ones' place is, and what is lost. Of a row that halves are no use for they may be anything.
template <class More = Plainly>
__device__ __forceinline__ void split(const Values& values, float scale, const Reach& reach, __half* high, Found& found,
                                      const More& more = {}) {
  __half2 highs[packet / 2];
  __half2 lows[packet / 2];
  Counted strong, heavy;
#pragma unroll
  for (int i = 0; i < packet; i += 2) {
    const float a = values.at[i] * scale;
    const float b = values.at[i + 1] * scale;
    highs[i / 2] = __floats2half2_rn(a, b);
    const float2 h = __half22float2(highs[i / 2]);
    lows[i / 2] = __floats2half2_rn((a - h.x) * reach.up, (b - h.y) * reach.up);
    const __half2 magnitudes = __habs2(highs[i / 2]);
    strong[i / 2] = __hge2(magnitudes, __float2half2_rn(least_strong));
    heavy[i / 2] = __hge2(magnitudes, __float2half2_rn(least_heavy));
    found.strong = __hadd2(found.strong, strong[i / 2]);
    found.heavy = __hadd2(found.heavy, heavy[i / 2]);
  }
  *reinterpret_cast<uint2*>(high) = reinterpret_cast<const uint2&>(highs);
  *reinterpret_cast<uint2*>(high + halves_step) = reinterpret_cast<const uint2&>(lows);
  more.count(strong, heavy);
  if (may_be_whole(found.flags)) {
    if constexpr (More::by_length) {
#pragma unroll
      for (int i = 0; i < packet; ++i) found.flags |= more.length_of(i);
    } else {
      const auto is_broken = [&](float value) {
        const float digits = value * scale / last_digit;
        return digits != rintf(digits);
      };
      // Of ordinary numbers one of a warp's, which are of the same row, tells.
      bool broken = __any_sync(__activemask(), is_broken(values.at[0]));
      for (int i = 1; i < packet && !broken; ++i) broken = is_broken(values.at[i]);
      if (broken) found.flags |= some_broken;
    }
  }
  static_assert(packet == 4);
  const __half2 least = __hmin2(__habs2(highs[0]), __habs2(highs[1]));
  if (may_be_whole(found.flags) || !__hbgt2(least, reinterpret_cast<const __half2&>(reach.least_held)))
    look_closely(values, scale, reach, found, more);
}

__device__ __forceinline__ float short_of_digits_by(Flags flags) {
  if (!may_be_whole(flags)) return 0;
  return has(flags, some_rest) ? all_short : has(flags, some_low) ? some_short : none_short;
}

__device__ __forceinline__ RowFacts facts_from(const FoundByAll& found, std::uint32_t largest, const Scale& scale,
                                               int count) {
  if (largest == 0) return {scale.down, -infinity, 0, whole_share, whole_share};
  if (!scale.usable) return {scale.down, infinity, 0, 0, 0};
  const float short_of_digits = short_of_digits_by(found.flags);
  const auto share = [&](int some) {
    return static_cast<std::uint16_t>(static_cast<std::int64_t>(some) * whole_share / count);
  };
  return {scale.down, found.rest * doubt_of_rest, short_of_digits, share(found.strong), share(found.heavy)};
}

// By a warp.
__device__ __forceinline__ FoundByAll gather(const Found& found) {
  const auto add = [](__half2 counts) {
    const auto own = static_cast<unsigned>(__low2float(counts) + __high2float(counts));
    return static_cast<int>(__reduce_add_sync(~0u, own));
  };
  FoundByAll all{add(found.strong), add(found.heavy), found.rest, __reduce_or_sync(~0u, found.flags)};
  if (__any_sync(~0u, all.rest != 0))
    for (int other = 16; other > 0; other /= 2) all.rest += __shfl_xor_sync(~0u, all.rest, other);
  return all;
}

// By kernels in files of their own: of the matrices that are stored by rows, and of those that are transposed.
const char* split_by_rows(const Halves& halves, cudaStream_t stream);
const char* split_by_columns(const Halves& halves, cudaStream_t stream);

}  // namespace tailor::hopper
