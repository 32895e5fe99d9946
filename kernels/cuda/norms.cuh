// The norms over tiles.
#pragma once
#include "place.cuh"

namespace tailor::cuda {

// Waits for the warps of one slot.
__device__ __forceinline__ void wait_for_slot(int slot, int lanes) {
  asm volatile("bar.sync %0, %1;" ::"r"(slot + 1), "r"(lanes) : "memory");
}

template <int Rows, class F>
__device__ __forceinline__ void sum_over_lanes(F (&sums)[Rows], int lanes) {
#pragma unroll
  for (int apart = 1; apart < 32; apart *= 2) {
    if (apart >= lanes) break;
#pragma unroll
    for (int row = 0; row < Rows; ++row) sums[row] += __shfl_xor_sync(0xffffffffu, sums[row], apart);
  }
}

// Sums over a slot, one for each row of the tile, in a fixed order. Where a slot is several warps they meet in shared
// memory, in a buffer that the sum before did not use: a warp that is one sum ahead then overwrites nothing unread.
template <int buffer, int Rows, class F>
__device__ __forceinline__ void sum_over_slot(F (&sums)[Rows], int lanes) {
  sum_over_lanes(sums, lanes);
  if (lanes <= 32) return;
  __shared__ F of_warp[Rows][most_threads / 32];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = lanes / 32;
  if (lane == 0) {
#pragma unroll
    for (int row = 0; row < Rows; ++row) of_warp[row][warp] = sums[row];
  }
  const int slot = warp / warps;
  wait_for_slot(slot, lanes);
#pragma unroll
  for (int row = 0; row < Rows; ++row) sums[row] = of_warp[row][slot * warps + lane % warps];
  sum_over_lanes(sums, warps);
}

// A mean is rounded; what it lost is the mean of the distances from it. That shows where there is hardly any spread: without
// it, a group of equal values would not give 0. Leaves in `lost` what the mean still lacks.
template <class F>
__device__ __forceinline__ void correct(F& mean, F& variance, F& lost) {
  const bool shows = lost * lost > variance * F(1e-6) && isfinite(lost);
  const F before = mean;
  mean += shows ? lost : F(0);
  variance -= shows ? lost * lost : F(0);
  lost = isfinite(lost) ? lost - (mean - before) : F(0);
  if (variance < 0) variance = 0;  // by a rounding; NaN stays
}

// A group norm of a tile whose groups are held by one slot each: in two passes over the registers. Terms are divided before
// they are added up, which costs nothing and keeps the sums of large numbers in range.
template <class Math, class F, int Rows, int Width>
struct GroupStatistics {
  PerRow<F, Rows> mean, lost, inverse_deviation;

  __device__ __forceinline__ GroupStatistics(const Tile<F, Rows, Width>& v, const Place& place, const Layout& layout,
                                             F eps)
      : GroupStatistics(
            v, eps, F(1) / static_cast<F>(layout.group_width),
            [&](auto& sums) { sum_over_slot<0>(sums, layout.lanes); },
            [&](auto& sums) { sum_over_slot<1>(sums, layout.lanes); }, place.holds) {}

  // `share`: 1 / width of the group. `add_up…` adds up over the threads that hold the group, for the first and the second
  // pass; a thread that does not hold any of it takes part.
  template <class AddUp, class AddUpAgain>
  __device__ __forceinline__ GroupStatistics(const Tile<F, Rows, Width>& v, F eps, F share, AddUp add_up,
                                             AddUpAgain add_up_again, bool holds = true) {
    F sums[Rows] = {};
    F distances[2 * Rows] = {};  // and their squares behind them
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
#pragma unroll
      for (int i = 0; i < Width; ++i) sums[row] += v.at[row][i] * share;
      if (!holds) sums[row] = 0;
    }
    add_up(sums);
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      const F near_mean = sums[row];
#pragma unroll
      for (int i = 0; i < Width; ++i) {
        const F off = v.at[row][i] - near_mean;
        distances[row] += off * share;
        distances[Rows + row] += off * off;
      }
      if (!holds) distances[row] = distances[Rows + row] = 0;
      mean.at[row] = near_mean;
    }
    add_up_again(distances);
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      F variance = distances[Rows + row] * share;
      lost.at[row] = distances[row];
      correct(mean.at[row], variance, lost.at[row]);
      inverse_deviation.at[row] = Math::inverse_deviation(variance, eps);
    }
  }
};

// The same for results of 16 bits, of groups whose width is a power of two. Added up two by two, equal values give their mean
// exactly, and the rest of what a mean loses is too little for 16 bits: so there is nothing to correct.
template <class Math, class F, int Rows, int Width>
struct PairwiseStatistics {
  PerRow<F, Rows> mean, inverse_deviation;

  template <class AddUp>
  __device__ __forceinline__ PairwiseStatistics(const Tile<F, Rows, Width>& v, F eps, F share, AddUp add_up) {
    F sums[Rows];
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      F pair[Width / 2];
#pragma unroll
      for (int i = 0; i < Width / 2; ++i) pair[i] = v.at[row][i] * share + v.at[row][i + Width / 2] * share;
#pragma unroll
      for (int half = Width / 4; half > 0; half /= 2) {
#pragma unroll
        for (int i = 0; i < half; ++i) pair[i] += pair[i + half];
      }
      sums[row] = pair[0];
    }
    add_up(sums);
    F squares[Rows] = {};
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      mean.at[row] = sums[row];
#pragma unroll
      for (int i = 0; i < Width; ++i) {
        const F off = v.at[row][i] - sums[row];
        squares[row] += off * off;
      }
    }
    add_up(squares);
#pragma unroll
    for (int row = 0; row < Rows; ++row) inverse_deviation.at[row] = Math::inverse_deviation(squares[row] * share, eps);
  }
};

// A batch norm's numbers for the columns of a thread.
template <class F, int Width>
struct ColumnStatistics {
  Columns<F, Width> mean, scale, bias;
};

}  // namespace tailor::cuda
