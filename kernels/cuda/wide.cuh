// The tail of a group norm whose groups are wider than what a block holds in registers. A block takes one group of one row
// after the other and reads it three times: for the mean, for the variance, for the result. The second and third time it
// lies in the cache.
#pragma once
#include "rows.cuh"

namespace tailor::cuda {

constexpr int wide_threads = most_threads;

template <class Chain, class T, int Width>
struct WideForward : Arithmetic<typename MathOf<T>::type> {
  using F = Compute<T>;
  using Value = Tile<F, 1, Width>;

  const Operands<Chain, F, Width>& operands;
  const Value& value;  // y before the norm, what the norm gave after it
  const Value& y;

  __device__ __forceinline__ WideForward(const Operands<Chain, F, Width>& o, const Value& v, const Value& l)
      : operands(o), value(v), y(l) {}
  __device__ __forceinline__ Value linear() { return y; }
  __device__ __forceinline__ Value normed() { return value; }
  template <class V>
  __device__ __forceinline__ auto vector(V v) {
    return operands.vector(v);
  }
  template <class S>
  __device__ __forceinline__ F scalar(S s) {
    return operands.scalar(s);
  }
};

template <int buffer, class F>
__device__ __forceinline__ F sum_over_block(F value) {
  F sums[1] = {value};
  sum_over_slot<buffer>(sums, wide_threads);
  return sums[0];
}

template <class Chain, class T, int Width>
__global__ void __launch_bounds__(wide_threads) wide_kernel(const __grid_constant__ Tail tail) {
  using F = Compute<T>;
  using Value = Tile<F, 1, Width>;
  wait_for_kernel_before();
  const std::int64_t group_width = tail.columns / tail.norm.groups;
  const std::int64_t groups = tail.rows * tail.norm.groups;
  for (std::int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    const std::int64_t row = group / tail.norm.groups;
    const std::int64_t first = (group % tail.norm.groups) * group_width;
    const T* y = static_cast<const T*>(tail.y) + row * tail.columns;
    T* out = static_cast<T*>(tail.out) + row * tail.columns;
    // Calls `work(place, y, what the norm reads)` for each packet of the group that is this thread's.
    const auto for_each = [&](auto work) {
      for (std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * Width; at < group_width;
           at += wide_threads * Width) {
        Place place;
        place.column = first + at;
        place.holds = true;
        const auto operands = operands_of<Chain, T, Width>(tail, place);
        Value value;
        load<Width>(y + first + at, value.at[0]);
        WideForward<Chain, T, Width> forward(operands, value, value);
        work(place, operands, value, forward.rounded(Before<Chain>::fold(forward)));
      }
    };
    F sum = 0;
    for_each([&](const auto&, const auto&, const Value&, const Value& v) {
#pragma unroll
      for (int i = 0; i < Width; ++i) sum += v.at[0][i];
    });
    const F mean = sum_over_block<0>(sum) / static_cast<F>(group_width);
    F squares = 0;
    for_each([&](const auto&, const auto&, const Value&, const Value& v) {
#pragma unroll
      for (int i = 0; i < Width; ++i) squares += (v.at[0][i] - mean) * (v.at[0][i] - mean);
    });
    const F variance = sum_over_block<1>(squares) / static_cast<F>(group_width);
    const F inverse_deviation = MathOf<T>::type::inverse_deviation(variance, static_cast<F>(tail.norm.eps));
    for_each([&](const auto& place, const auto& operands, const Value& linear, const Value& v) {
      const auto normed =
          normalise(v, mean, inverse_deviation, columns_of<T, Width>({tail.norm.weight, true}, place, F(1)),
                    columns_of<T, Width>({tail.norm.bias, true}, place, F(0)));
      WideForward<Chain, T, Width> forward(operands, normed, linear);
      const auto result = After<Chain>::fold(forward);
      store<Width>(result.at[0], out + place.column);
    });
  }
}

}  // namespace tailor::cuda
