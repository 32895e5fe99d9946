// What batch statistics are made of, gathered while the linear's result is still in registers: the moments of a tile's rows, for
// each of its columns. Those of all tiles are merged by the blocks themselves (agreement.cuh) or by the tail's kernel
// (cuda/statistics.cuh).
#pragma once
#include "../cuda/statistics.cuh"
#include "tail.cuh"

namespace tailor::hopper {

// Of some values of a column: their sum and that of their squares, counted from one of them. What has to be subtracted from the
// squares of sixteen is then fifteen sixteenths of them at most, wherever the mean is.
struct Sums {
  float from, sum, squares;
};

// A thread's two rows of a column. All lanes that have the column count from the first row of the warp.
__device__ __forceinline__ Sums sums_of_thread(float upper, float lower, int lane, int rows) {
  const float first = __shfl_sync(0xffffffffu, upper, lane % 4);
  const float from = isfinite(first) ? first : 0;  // so that the mean of an infinite one is infinite
  const float a = lane / 4 < rows ? upper - from : 0;
  const float b = lane / 4 + 8 < rows ? lower - from : 0;
  return {from, a + b, a * a + b * b};
}

// Of two columns a lane keeps one, and adds what another lane has of that.
__device__ __forceinline__ Sums halve(const Sums& first, const Sums& second, int lane, int apart) {
  const bool keeps_second = (lane & apart) != 0;
  const auto of_both = [&](float x, float y) {
    return (keeps_second ? y : x) + __shfl_xor_sync(0xffffffffu, keeps_second ? x : y, apart);
  };
  return {keeps_second ? second.from : first.from, of_both(first.sum, second.sum),
          of_both(first.squares, second.squares)};
}

// The moments of what the norm reads, of a part's columns over a warp's rows, of which the first `rows` exist. Each of the eight
// lanes that have a column ends up with one of their eight.
template <class Chain, class T, class Now, class Vectors>
__device__ __forceinline__ void gather_moments(const Problem& problem, const Vectors& columns,
                                               const typename Now::Value& y, int first, int lane, int rows,
                                               Moment (&to)[Now::columns]) {
  static_assert(Now::width == 8 && Now::rows == 2);
  Finish<Chain, T, Now::rows, Now::width, Vectors> interpreter(problem, columns, first, lane, y);
  const auto v = interpreter.rounded(Before<Chain>::fold(interpreter));
  const auto of_thread = [&](int i) { return sums_of_thread(v.at[0][i], v.at[1][i], lane, rows); };
  const auto of_two = [&](int i) { return halve(of_thread(i), of_thread(i + 4), lane, 16); };
  const auto of_four = [&](int i) { return halve(of_two(i), of_two(i + 2), lane, 8); };
  const Sums sums = halve(of_four(0), of_four(1), lane, 4);
  const float mean = sums.sum / static_cast<float>(rows);
  const int own = lane / 4;
  to[8 * (own / 2) + 2 * (lane % 4) + own % 2] = {sums.from + mean, fmaf(-sums.sum, mean, sums.squares)};
}

// All that a block's warps have put down about one column, of which the first `rows` exist.
template <class OfWarp>
__device__ __forceinline__ Moment merge_warps(int rows, OfWarp of_warp) {
  Moment all = of_warp(0);
#pragma unroll 2
  for (int warp = 1; warp * warp_rows < rows; ++warp) {
    const Moment more = of_warp(warp);
    const auto count = static_cast<float>(warp * warp_rows);
    const auto added = static_cast<float>(min(rows - warp * warp_rows, warp_rows));
    cuda::merge_moments(all.x, all.y, more.x, more.y, count, added * cuda::quick_reciprocal(count + added));
  }
  return all;
}

// A warp merges what the others have put down about every second part of a tile's columns, one column a lane: put(column, moments) of those that
// there are. A tile begins with the same phase of its place as the one before.
template <class Now, class Tile, class Put>
__device__ __forceinline__ void merge_parts(Moments<true>& memory, const Tile& tile, int which, int lane, Put put) {
  static_assert(Now::columns == Moments<true>::columns && Now::count % 4 == 0);
  int row, column;
  tile.locate(row, column);
  const int rows = min(static_cast<int>(tile.problem.tail.rows) - row, tile_height);
  column += which * Now::columns + lane;
#pragma unroll 1
  for (std::uint32_t phase = 0; phase < Now::count / 2; ++phase, column += 2 * Now::columns) {
    wait(address_of(&memory.full[which]), phase & 1);
    const Moment all = merge_warps(rows, [&](int warp) { return memory.of_part[which][warp][lane]; });
    __syncwarp();
    if (lane == 0) arrive(address_of(&memory.empty[which]));
    if (rows > 0 && column < tile.problem.tail.columns) put(column, all);
  }
}

}  // namespace tailor::hopper
