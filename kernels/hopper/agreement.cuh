// How the blocks that share columns agree on batch statistics, all of them being there at the same time: each says what it has
// found out about its rows, merges all rows of some of the columns, and reads what the others have made of theirs. What is read is its
// own flag: unknown until it is said. Which rows are merged when is fixed, so that results are the same from run to run.
#pragma once
#include "moments.cuh"

namespace tailor::hopper {

// Of one block, a warp: two of them have half of a tile's columns each, 32 by 32, and agree on these by themselves.
template <class Chain, class T>
struct Agreeing {
  static constexpr int columns = widest_tile / 2;

  const TileProblem& problem;

  // Registers are few: what follows from these is worked out where it is needed.
  __device__ __forceinline__ int lane() const { return anew(static_cast<int>(threadIdx.x)) % 32; }
  __device__ __forceinline__ int which() const { return anew(static_cast<int>(threadIdx.x)) / 32 % 2; }
  __device__ __forceinline__ int self() const { return anew(static_cast<int>(blockIdx.x)); }

  __device__ __forceinline__ int place_of(int own) const { return own + own / 32 * 32 + which() * 32; }  // in the tile
  __device__ __forceinline__ int chunks() const {
    return (anew(static_cast<int>(problem.tail.rows)) + tile_height - 1) / tile_height;
  }
  static __device__ __forceinline__ void tell(std::uint64_t* to, const Moment& moment) {
    tell_gpu(to, static_cast<std::uint64_t>(__float_as_uint(moment.y)) << 32 | __float_as_uint(moment.x));
  }
  // Waits until somebody has told each of these; those from `count` on nobody will.
  template <int apart, int some>
  static __device__ __forceinline__ void ask(const std::uint64_t* from, int count, Moment (&moments)[some]) {
    std::uint64_t found[some];
    for (bool known = false; !known;) {
      known = true;
#pragma unroll
      for (int i = 0; i < some; ++i) found[i] = i < count ? ask_gpu(from + i * apart) : 0;
#pragma unroll
      for (int i = 0; i < some; ++i) known = known && found[i] != Agreement::unknown;
      if (!known) __nanosleep(32);  // what is asked for meanwhile is in the way of what is multiplied
    }
#pragma unroll
    for (int i = 0; i < some; ++i)
      moments[i] = {__uint_as_float(static_cast<std::uint32_t>(found[i])),
                    __uint_as_float(static_cast<std::uint32_t>(found[i] >> 32))};
  }
  // Before any block says anything.
  __device__ __forceinline__ void forget_all() const {
    const std::int64_t all = (static_cast<std::int64_t>(chunks()) + 1) * problem.tail.columns;
    const auto threads = static_cast<std::int64_t>(gridDim.x * gridDim.y) * block_threads;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y * gridDim.x + blockIdx.x) * block_threads + threadIdx.x;
         i < all; i += threads)
      tell_gpu(problem.agreement.of_tiles + i, Agreement::unknown);
  }

  __device__ __forceinline__ void say(int column, const Moment& of_rows) const {
    tell(problem.agreement.of_tiles + static_cast<std::int64_t>(column) * chunks() + self(), of_rows);
  }

  __device__ __forceinline__ float rows_of(int chunk) const {
    return static_cast<float>(min(static_cast<int>(problem.tail.rows) - chunk * tile_height, tile_height));
  }
  static __device__ __forceinline__ void merge(Moment& all, float count, const Moment& more, float added) {
    if (added <= 0) return;
    if (count == 0)
      all = more;
    else
      cuda::merge_moments(all.x, all.y, more.x, more.y, count, added * cuda::quick_reciprocal(count + added));
  }

  // each(column) of this block's share that there are. Where that is less than the lanes, some lanes have the same column.
  template <class Each>
  __device__ __forceinline__ void for_share(int first_column, Each each) const {
    const int share = 1 << anew(problem.agreement.share_bits);
    const int step = min(share, 32);
#pragma unroll 1
    for (int at = lane() & (step - 1); at < share; at += step) {
      const int own = self() * share + at;
      const int column = first_column + place_of(own);
      each(column, own < columns && column < problem.tail.columns);
    }
  }

  __device__ __forceinline__ int bits_of_lane() const { return min(anew(problem.agreement.share_bits), 5); }
  __device__ __forceinline__ bool is_first_of_column() const { return lane() >> bits_of_lane() == 0; }

  // All rows of this block's share. Lanes that have the same column each begin with some of its rows.
  __device__ __forceinline__ void merge_share(int first_column) const {
    constexpr int at_once = 3;  // moments under way
    const int bits = bits_of_lane();
    const int of_run = (chunks() + (31 >> bits)) >> (5 - bits);
    const int first = (lane() >> bits) * of_run;
    const int end = min(first + of_run, chunks());
    for_share(first_column, [&](int column, bool holds) {
      Moment all{0, 0};
      const int rows = static_cast<int>(problem.tail.rows);
      const std::uint64_t* from = problem.agreement.of_tiles + static_cast<std::int64_t>(column) * chunks() + first;
#pragma unroll 1
      for (int chunk = first; chunk < end && holds; chunk += at_once) {
        Moment more[at_once];
        ask<1>(from, end - chunk, more);
#pragma unroll
        for (int i = 0; i < at_once; ++i)
          if (chunk + i < end)
            merge(all, static_cast<float>((chunk + i - first) * tile_height), more[i], rows_of(chunk + i));
        from += at_once;
      }
      auto count = static_cast<float>(min(rows - first * tile_height, of_run * tile_height));
      for (int apart = 1 << bits; apart < 32; apart *= 2) {
        const Moment more{__shfl_down_sync(0xffffffffu, all.x, apart), __shfl_down_sync(0xffffffffu, all.y, apart)};
        const float added = __shfl_down_sync(0xffffffffu, count, apart);
        merge(all, count, more, added);
        if (added > 0) count += added;
      }
      if (holds && is_first_of_column()) tell(problem.agreement.of_all + column, all);
    });
  }

  // What the tail needs of a column's statistics, to where it reads what belongs to a column. The norm's weight is there already: a warp has
  // brought it before the others could gather what this one has merged.
  template <class Vectors>
  __device__ __forceinline__ void bring(int first_column, Vectors& to) const {
    using Is = Which<Chain>;
    constexpr int of_lane = columns / 32;
    const int first = first_column + place_of(lane());
    Moment all[of_lane];
    ask<2 * 32>(problem.agreement.of_all + first,
                (static_cast<int>(problem.tail.columns) - first + 2 * 32 - 1) / (2 * 32), all);
    const auto rows = static_cast<float>(problem.tail.rows);
    const auto eps = static_cast<float>(problem.tail.norm.eps);
#pragma unroll
    for (int i = 0; i < of_lane; ++i) {
      float2* const pair = to.of_pair[place_of(lane() + 32 * i) / 2];
      float& weight = lane() % 2 == 0 ? pair[Is::norm_weight].x : pair[Is::norm_weight].y;
      weight = cuda::scale_of(all[i].y / rows, eps, weight);
      (lane() % 2 == 0 ? pair[Is::mean].x : pair[Is::mean].y) = all[i].x;
    }
  }

  // Nobody waits for this.
  __device__ __forceinline__ void keep_share(int first_column) const {
    for_share(first_column, [&](int column, bool holds) {
      if (!holds || !is_first_of_column()) return;
      Moment all[1];
      ask<1>(problem.agreement.of_all + column, 1, all);
      const float mean[1] = {all[0].x};
      const float squares[1] = {all[0].y};
      cuda::keep_statistics<T>(problem.tail, column, mean, squares);
    });
  }
};

}  // namespace tailor::hopper
