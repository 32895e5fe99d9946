// Batch statistics: mean and variance of each column of what the norm reads. Every thread merges tiles into its own mean
// and sum of squares (Chan), a block those of its threads, and whoever normalises those of the blocks; in a fixed order, so
// that the result is the same each time. Nothing is ever subtracted from a large sum, so a mean far above the spread costs
// no digits. Or the linear's kernel has gathered already (hopper/moments.cuh).
#pragma once
#include "norms.cuh"

namespace tailor::cuda {

// Merges the mean and squared distances of `more` values into those of `count`. `share` is more / (count + more).
template <class F>
__device__ __forceinline__ void merge_moments(F& mean, F& squares, F more_mean, F more_squares, F count, F share) {
  const F apart = more_mean == mean ? F(0) : more_mean - mean;  // infinite ones are equal too
  squares += more_squares + apart * apart * (count * share);
  mean += apart * share;
}

// How the rows of a column are shared out, known to the kernel that gathers and to those that merge.
struct Gathering {
  int lanes = 8;  // threads side by side, each with one packet of columns
  int chunks = 1;
  int rows_per_chunk = 0;
};

constexpr int gathering_threads = 256;
constexpr int most_chunks = 16;  // that whoever normalises merges

inline __host__ __device__ Gathering share_out(std::int64_t rows, std::int64_t columns, int width) {
  Gathering gathering;
  gathering.lanes = width == 1 ? 32 : 8;
  const std::int64_t column_blocks = ceiling(columns, std::int64_t{gathering.lanes} * width);
  const std::int64_t at_most = ceiling(rows, gathering_threads / gathering.lanes * 4);  // four rows a thread at least
  std::int64_t chunks = ceiling(256, column_blocks);  // enough blocks to fill a GPU, few enough to merge quickly
  if (chunks > most_chunks) chunks = most_chunks;
  if (chunks > at_most) chunks = at_most;
  gathering.rows_per_chunk = static_cast<int>(ceiling(rows, chunks));
  gathering.chunks = static_cast<int>(ceiling(rows, gathering.rows_per_chunk));
  return gathering;
}

// What the linear's kernel has gathered is of few rows each: where there are more of them, merge_kernel comes between.
inline __host__ __device__ int gathered_chunks(const Tail& tail) {
  return static_cast<int>(ceiling(tail.rows, tail.norm.gathered_rows));
}
inline __host__ __device__ bool needs_merging(const Tail& tail) { return gathered_chunks(tail) > most_chunks; }

// What is in the workspace when somebody normalises.
inline __host__ __device__ Gathering gathering_of(const Tail& tail, int width) {
  if (tail.norm.gathered_rows == 0) return share_out(tail.rows, tail.columns, width);
  Gathering gathering;
  const int chunks = gathered_chunks(tail);
  gathering.chunks = needs_merging(tail) ? 1 : chunks;
  gathering.rows_per_chunk = needs_merging(tail) ? static_cast<int>(tail.rows) : tail.norm.gathered_rows;
  return gathering;
}

template <class F>
__device__ __forceinline__ void put_partial(const Tail& tail, int chunk, std::int64_t column, F mean, F squares) {
  F* partial = static_cast<F*>(tail.norm.workspace) + 2 * chunk * tail.columns + column;
  partial[0] = mean;
  partial[tail.columns] = squares;
}

// Merges the first `taken` rows of a tile into each column's moments.
template <bool all, class F, int Rows, int Width>
__device__ __forceinline__ void merge_tile(const Tile<F, Rows, Width>& v, int taken, F (&means)[Width],
                                           F (&squares)[Width], F& count) {
  const F more = all ? F(Rows) : F(taken);
  const F share = more / (count + more);
  const F inverse = F(1) / more;
#pragma unroll
  for (int i = 0; i < Width; ++i) {
    F sum = 0;
#pragma unroll
    for (int row = 0; row < Rows; ++row) sum += all || row < taken ? v.at[row][i] : F(0);
    const F mean = sum * inverse;
    F own = 0;
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      const F off = v.at[row][i] - mean;
      own += all || row < taken ? off * off : F(0);
    }
    if (count == 0) {
      means[i] = mean;
      squares[i] = own;
    } else {
      merge_moments(means[i], squares[i], mean, own, count, share);
    }
  }
  count += more;
}

template <class Chain, class T, int Rows, int Width>
__global__ void __launch_bounds__(gathering_threads)
    gather_kernel(const __grid_constant__ Tail tail, const Gathering gathering) {
  using F = Compute<T>;
  constexpr int threads = gathering_threads;
  wait_for_kernel_before();
  const int self = static_cast<int>(threadIdx.x);
  const int row_thread = self / gathering.lanes;
  const int rows = static_cast<int>(tail.rows);
  const int begin = static_cast<int>(blockIdx.y) * gathering.rows_per_chunk;
  const int end = rows - begin < gathering.rows_per_chunk ? rows : begin + gathering.rows_per_chunk;
  Place place;
  place.column = (static_cast<std::int64_t>(blockIdx.x) * gathering.lanes + self % gathering.lanes) * Width;
  place.holds = place.column < tail.columns;
  place.first_row = begin + row_thread;
  place.row_step = threads / gathering.lanes;
  const auto operands = operands_of<Chain, T, Width>(tail, place);

  F means[Width] = {};
  F squares[Width] = {};
  F count = 0;
  using Rounds = Fetched<T, Rows, Width>;
  Marching marching(tail.columns, end, place);
  Rounds next(tail.y, marching);
  while (marching.left > 0) {
    const auto y = next.tile();
    const int taken = marching.left;
    marching.advance(Rows);
    next = Rounds(tail.y, marching);
    LeavesOf<Chain, T, Rows, Width> leaves(operands, y);
    const auto v = leaves.rounded(Before<Chain>::fold(leaves));
    if (taken >= Rows)
      merge_tile<true>(v, Rows, means, squares, count);
    else
      merge_tile<false>(v, taken, means, squares, count);
  }

  // The row threads of a block are merged in halves.
  __shared__ F all_means[threads * Width];
  __shared__ F all_squares[threads * Width];
  __shared__ F all_counts[threads];
#pragma unroll
  for (int i = 0; i < Width; ++i) {
    all_means[i * threads + self] = means[i];
    all_squares[i * threads + self] = squares[i];
  }
  all_counts[self] = count;
  for (int apart = threads / 2; apart >= gathering.lanes; apart /= 2) {
    __syncthreads();
    const F more = self < apart ? all_counts[self + apart] : F(0);
    if (more == 0) continue;
    const F own = all_counts[self];
    const F share = more / (own + more);
#pragma unroll
    for (int i = 0; i < Width; ++i) {
      const int at = i * threads + self;
      merge_moments(all_means[at], all_squares[at], all_means[at + apart], all_squares[at + apart], own, share);
    }
    all_counts[self] = own + more;
  }
  if (row_thread != 0 || !place.holds) return;
  F* partial = static_cast<F*>(tail.norm.workspace) + 2 * blockIdx.y * tail.columns + place.column;
#pragma unroll
  for (int i = 0; i < Width; ++i) {
    partial[i] = all_means[i * threads + self];
    partial[tail.columns + i] = all_squares[i * threads + self];
  }
}

// Makes one chunk of many. A block has some columns, each of its warps a run of chunks.
constexpr int merging_columns = 32;
constexpr int merging_runs = 16;
template <class F>
__global__ void __launch_bounds__(merging_columns* merging_runs) merge_kernel(const __grid_constant__ Tail tail) {
  __shared__ F means[merging_runs][merging_columns];
  __shared__ F squares[merging_runs][merging_columns];
  wait_for_kernel_before();
  const int lane = static_cast<int>(threadIdx.x) % merging_columns;
  const int run = static_cast<int>(threadIdx.x) / merging_columns;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * merging_columns + lane;
  const bool holds = column < tail.columns;
  const int rows_per_chunk = tail.norm.gathered_rows;
  const int chunks = gathered_chunks(tail);
  const int of_run = static_cast<int>(ceiling(chunks, merging_runs));
  const auto rows_of = [&](int first, int some) {  // chunks
    const std::int64_t left = tail.rows - static_cast<std::int64_t>(first) * rows_per_chunk;
    const std::int64_t most = static_cast<std::int64_t>(some) * rows_per_chunk;
    return static_cast<F>(left <= 0 ? 0 : left < most ? left : most);
  };
  F mean = 0;
  F square = 0;
  F count = 0;
  const auto merge = [&](F more_mean, F more_squares, F more) {
    if (count == 0) {
      mean = more_mean;
      square = more_squares;
    } else {
      merge_moments(mean, square, more_mean, more_squares, count, more / (count + more));
    }
    count += more;
  };
#pragma unroll 4
  for (int i = 0; i < of_run; ++i) {
    const int chunk = run * of_run + i;
    if (chunk >= chunks || !holds) break;
    const F* from = static_cast<const F*>(tail.norm.workspace) + 2 * chunk * tail.columns + column;
    merge(from[0], from[tail.columns], rows_of(chunk, 1));
  }
  means[run][lane] = mean;
  squares[run][lane] = square;
  __syncthreads();
  if (run != 0 || !holds) return;
  for (int i = 1; i < merging_runs; ++i) {
    const F more = rows_of(i * of_run, of_run);
    if (more > 0) merge(means[i][lane], squares[i][lane], more);
  }
  put_partial(tail, 0, column, mean, square);
}

// Merges what is in the workspace: each column's mean and the sum of its squared distances.
template <class F, int Width>
__device__ __forceinline__ void merge_chunks(const Tail& tail, std::int64_t column, F (&means)[Width],
                                             F (&squares)[Width]) {
  const Gathering gathering = gathering_of(tail, Width);
  F count = 0;
#pragma unroll 4
  for (int chunk = 0; chunk < gathering.chunks; ++chunk) {
    const int left = static_cast<int>(tail.rows) - chunk * gathering.rows_per_chunk;
    const F more = static_cast<F>(left < gathering.rows_per_chunk ? left : gathering.rows_per_chunk);
    const F share = more / (count + more);
    const F* from = static_cast<const F*>(tail.norm.workspace) + 2 * chunk * tail.columns + column;
    F more_means[Width];
    F more_squares[Width];
    load<Width>(from, more_means);
    load<Width>(from + tail.columns, more_squares);
#pragma unroll
    for (int i = 0; i < Width; ++i) {
      if (chunk == 0) {
        means[i] = more_means[i];
        squares[i] = more_squares[i];
      } else {
        merge_moments(means[i], squares[i], more_means[i], more_squares[i], count, share);
      }
    }
    count += more;
  }
}

// One thread of those with the same columns, the first, updates the running statistics and keeps what the backward needs.
template <class T, class F, int Width>
__device__ __forceinline__ void keep_statistics(const Tail& tail, std::int64_t column, const F (&means)[Width],
                                                const F (&squares)[Width]) {
  const NormArguments& norm = tail.norm;
  const F momentum = static_cast<F>(norm.momentum);
#pragma unroll
  for (int i = 0; i < Width; ++i) {
    const F unbiased = squares[i] / static_cast<F>(tail.rows - 1);
    T* running_mean = static_cast<T*>(norm.mean) + column + i;
    T* running_var = static_cast<T*>(norm.var) + column + i;
    if (norm.mean != nullptr) narrow(widen(*running_mean) * (F(1) - momentum) + means[i] * momentum, *running_mean);
    if (norm.var != nullptr) narrow(widen(*running_var) * (F(1) - momentum) + unbiased * momentum, *running_var);
    if (norm.saved != nullptr) {
      F* saved = static_cast<F*>(norm.saved) + column + i;
      saved[0] = means[i];
      saved[tail.columns] = scale_of(squares[i] / static_cast<F>(tail.rows), static_cast<F>(norm.eps), F(1));
    }
  }
}

template <class T, int Width>
__device__ __forceinline__ auto column_statistics(const Tail& tail, const Place& place) {
  using F = Compute<T>;
  ColumnStatistics<F, Width> out{};
  if (!place.holds) return out;
  const NormArguments& norm = tail.norm;
  const F eps = static_cast<F>(norm.eps);
  F variances[Width] = {};
  if (norm.batch_statistics) {
    merge_chunks(tail, place.column, out.mean.at, variances);
    if (place.first_row == 0) keep_statistics<T>(tail, place.column, out.mean.at, variances);
#pragma unroll
    for (int i = 0; i < Width; ++i) variances[i] /= static_cast<F>(tail.rows);
  } else {
    load<Width>(static_cast<const T*>(norm.mean) + place.column, out.mean.at);
    load<Width>(static_cast<const T*>(norm.var) + place.column, variances);
  }
  const auto weight = columns_of<T, Width>({norm.weight, true}, place, F(1));
#pragma unroll
  for (int i = 0; i < Width; ++i) out.scale.at[i] = scale_of(variances[i], eps, weight.at[i]);
  out.bias = columns_of<T, Width>({norm.bias, true}, place, F(0));
  return out;
}

}  // namespace tailor::cuda
