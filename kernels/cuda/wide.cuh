// The tail of a group norm whose groups are wider than what a block holds in registers. A block takes one group of one row
// after the other and reads it three times: for the mean, for the variance, for the result. The second and third time it
// lies in the cache.
#pragma once
#include "rows.cuh"

namespace tailor::cuda {

constexpr int wide_threads = most_threads;

// What stands behind the norm, from what the norm gave.
template <class Chain, class T, int Width>
struct BehindNorm : LeavesOf<Chain, T, 1, Width> {
  using Value = Tile<Compute<T>, 1, Width>;
  const Value& norm_result;

  __device__ __forceinline__ BehindNorm(const Operands<Chain, Compute<T>, Width>& o, const Value& y,
                                        const Value& normal)
      : LeavesOf<Chain, T, 1, Width>(o, y), norm_result(normal) {}
  __device__ __forceinline__ Value normed() { return norm_result; }
};

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
        LeavesOf<Chain, T, 1, Width> leaves(operands, value);
        work(place, operands, value, leaves.rounded(Before<Chain>::fold(leaves)));
      }
    };
    const F share = F(1) / static_cast<F>(group_width);
    F sum[1] = {};
    for_each([&](const auto&, const auto&, const Value&, const Value& v) {
#pragma unroll
      for (int i = 0; i < Width; ++i) sum[0] += v.at[0][i] * share;
    });
    sum_over_slot<0>(sum, wide_threads);
    F mean = sum[0];
    F distances[2] = {};
    for_each([&](const auto&, const auto&, const Value&, const Value& v) {
#pragma unroll
      for (int i = 0; i < Width; ++i) {
        const F off = v.at[0][i] - mean;
        distances[0] += off * share;
        distances[1] += off * off;
      }
    });
    sum_over_slot<1>(distances, wide_threads);
    F variance = distances[1] * share;
    correct(mean, variance, distances[0]);
    const F inverse_deviation = MathOf<T>::type::inverse_deviation(variance, static_cast<F>(tail.norm.eps));
    for_each([&](const auto& place, const auto& operands, const Value& linear, const Value& v) {
      const auto normed =
          normalise(v, mean, inverse_deviation, columns_of<T, Width>({tail.norm.weight, true}, place, F(1)),
                    columns_of<T, Width>({tail.norm.bias, true}, place, F(0)));
      BehindNorm<Chain, T, Width> behind(operands, linear, normed);
      const auto result = After<Chain>::fold(behind);
      store<Width>(result.at[0], out + place.column);
    });
  }
}

}  // namespace tailor::cuda
