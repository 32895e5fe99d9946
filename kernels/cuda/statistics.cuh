// Batch statistics: mean and variance of each column of what the norm reads. Every thread merges tiles into its own mean
// and sum of squares (Chan), a block those of its threads, and whoever normalises those of the blocks; in a fixed order, so
// that the result is the same each time. Nothing is ever subtracted from a large sum, so a mean far above the spread costs
// no digits.
#pragma once
#include "place.cuh"

namespace tailor::cuda {

// Of `count` values: their mean and the sum of their squared distances from it.
template <class F>
struct Moments {
  F count = 0;
  F mean = 0;
  F squares = 0;

  __device__ __forceinline__ void merge(const Moments& other) {
    if (other.count == 0) return;
    const F total = count + other.count;
    const F share = other.count / total;
    const F apart = other.mean - mean;
    squares += other.squares + apart * apart * (count * share);
    mean += apart * share;
    count = total;
  }
};

// How the rows of a column are shared out, known to the kernel that gathers and to those that merge.
struct Gathering {
  int lanes = 8;  // threads side by side, each with one packet of columns
  int chunks = 1;
  std::int64_t rows_per_chunk = 0;
};

constexpr int gathering_threads = 256;

inline __host__ __device__ Gathering share_out(std::int64_t rows, std::int64_t columns, int width) {
  Gathering gathering;
  gathering.lanes = width == 1 ? 32 : 8;
  const std::int64_t column_blocks = ceiling(columns, std::int64_t{gathering.lanes} * width);
  const std::int64_t at_least = ceiling(rows, gathering_threads / gathering.lanes * 4);  // four rows a thread
  std::int64_t chunks = ceiling(1024, column_blocks);  // enough blocks to fill any GPU, few enough to merge quickly
  if (chunks > 16) chunks = 16;
  if (chunks > at_least) chunks = at_least;
  gathering.rows_per_chunk = ceiling(rows, chunks);
  gathering.chunks = static_cast<int>(ceiling(rows, gathering.rows_per_chunk));
  return gathering;
}

// A batch norm's numbers for the columns of a thread.
template <class F, int Width>
struct ColumnStatistics {
  Columns<F, Width> mean, scale, bias;

  template <class T, int Packet>
  __device__ __forceinline__ void find(const Tail& tail, std::int64_t column, bool first) {
    static_assert(Packet == Width);
    const NormArguments& norm = tail.norm;
    if (norm.batch_statistics) {
      merge_chunks<T>(tail, column, first);
    } else {
      load<Width>(static_cast<const T*>(norm.mean) + column, mean.at);
      load<Width>(static_cast<const T*>(norm.var) + column, scale.at);
#pragma unroll
      for (int i = 0; i < Width; ++i) scale.at[i] = F(1) / sqrt(scale.at[i] + static_cast<F>(norm.eps));
    }
    if (norm.weight != nullptr) {
      Columns<F, Width> weight;
      load<Width>(static_cast<const T*>(norm.weight) + column, weight.at);
#pragma unroll
      for (int i = 0; i < Width; ++i) scale.at[i] *= weight.at[i];
    }
#pragma unroll
    for (int i = 0; i < Width; ++i) bias.at[i] = 0;
    if (norm.bias != nullptr) load<Width>(static_cast<const T*>(norm.bias) + column, bias.at);
  }

  // Leaves 1 / deviation in `scale`. One thread of those with the same columns, the first, also updates the running
  // statistics and keeps what the backward needs.
  template <class T>
  __device__ __forceinline__ void merge_chunks(const Tail& tail, std::int64_t column, bool first) {
    const NormArguments& norm = tail.norm;
    const Gathering gathering = share_out(tail.rows, tail.columns, Width);
    const F* partial = static_cast<const F*>(norm.workspace);
    Moments<F> moments[Width];
    for (int chunk = 0; chunk < gathering.chunks; ++chunk) {
      const std::int64_t begin = chunk * gathering.rows_per_chunk;
      const std::int64_t left = tail.rows - begin;
      const F count = static_cast<F>(left < gathering.rows_per_chunk ? left : gathering.rows_per_chunk);
      const F* means = partial + 2 * chunk * tail.columns;
#pragma unroll
      for (int i = 0; i < Width; ++i)
        moments[i].merge({count, means[column + i], means[tail.columns + column + i]});
    }
    const F rows = static_cast<F>(tail.rows);
#pragma unroll
    for (int i = 0; i < Width; ++i) {
      mean.at[i] = moments[i].mean;
      scale.at[i] = F(1) / sqrt(moments[i].squares / rows + static_cast<F>(norm.eps));
    }
    if (!first) return;
    const F momentum = static_cast<F>(norm.momentum);
#pragma unroll
    for (int i = 0; i < Width; ++i) {
      T* running_mean = static_cast<T*>(norm.mean) + column + i;
      T* running_var = static_cast<T*>(norm.var) + column + i;
      const F unbiased = moments[i].squares / (rows - F(1));
      if (norm.mean != nullptr) narrow(widen(*running_mean) * (F(1) - momentum) + mean.at[i] * momentum, *running_mean);
      if (norm.var != nullptr) narrow(widen(*running_var) * (F(1) - momentum) + unbiased * momentum, *running_var);
      if (norm.saved != nullptr) {
        F* saved = static_cast<F*>(norm.saved) + column + i;
        saved[0] = mean.at[i];
        saved[tail.columns] = scale.at[i];
      }
    }
  }
};

// What the norm reads, for a tile.
template <class Chain, class T, int Rows, int Width>
struct UpToNorm : Arithmetic<typename MathOf<T>::type> {
  using F = Compute<T>;
  const Operands<Chain, F, Width>& operands;
  const Tile<F, Rows, Width>& y;

  __device__ __forceinline__ UpToNorm(const Operands<Chain, F, Width>& o, const Tile<F, Rows, Width>& value)
      : operands(o), y(value) {}
  __device__ __forceinline__ Tile<F, Rows, Width> linear() { return y; }
  template <class V>
  __device__ __forceinline__ auto vector(V v) {
    return operands.vector(v);
  }
  template <class S>
  __device__ __forceinline__ F scalar(S s) {
    return operands.scalar(s);
  }
};

// Merges the first `count` rows of a tile into each column's moments.
template <class F, int Rows, int Width>
__device__ __forceinline__ void merge_tile(const Tile<F, Rows, Width>& v, int count, F (&means)[Width],
                                           F (&squares)[Width], F before) {
  const F share = F(count) / (before + F(count));
  const F inverse = F(1) / F(count);
#pragma unroll
  for (int i = 0; i < Width; ++i) {
    F sum = 0;
#pragma unroll
    for (int row = 0; row < Rows; ++row) sum += row < count ? v.at[row][i] : F(0);
    const F mean = sum * inverse;
    F own = 0;
#pragma unroll
    for (int row = 0; row < Rows; ++row) {
      const F off = v.at[row][i] - mean;
      own += row < count ? off * off : F(0);
    }
    const F apart = mean - means[i];
    squares[i] += own + apart * apart * (before * share);
    means[i] += apart * share;
  }
}

template <class Chain, class T, int Rows, int Width>
__global__ void __launch_bounds__(gathering_threads) gather_kernel(const __grid_constant__ Tail tail, const Gathering gathering) {
  using F = Compute<T>;
  constexpr int threads = gathering_threads;
  const int lane = static_cast<int>(threadIdx.x) % gathering.lanes;
  const int row_thread = static_cast<int>(threadIdx.x) / gathering.lanes;
  const int row_threads = threads / gathering.lanes;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * gathering.lanes + lane) * Width;
  const std::int64_t begin = blockIdx.y * gathering.rows_per_chunk;
  const std::int64_t end = begin + gathering.rows_per_chunk < tail.rows ? begin + gathering.rows_per_chunk : tail.rows;
  const Place<Width, 1> place(column, column < tail.columns, begin + row_thread, row_threads);
  const KeptOperands<Chain, T, Width> operands(tail, place);

  F means[Width] = {};
  F squares[Width] = {};
  F count = 0;
  for (std::int64_t row = place.first_row; row < end; row += Rows * place.row_step) {
    const auto y = load_tile<T, Rows>(static_cast<const T*>(tail.y), tail.columns, row, place.row_step, end, place);
    UpToNorm<Chain, T, Rows, Width> up_to_norm(operands, y);
    const auto v = Before<Chain>::fold(up_to_norm);
    const std::int64_t left = ceiling(end - row, place.row_step);
    const int taken = left < Rows ? static_cast<int>(left) : Rows;
    merge_tile(v, taken, means, squares, count);
    count += F(taken);
  }

  // The row threads of a block are merged in halves.
  __shared__ F all_means[threads * Width];
  __shared__ F all_squares[threads * Width];
  __shared__ F all_counts[threads];
  const int self = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < Width; ++i) {
    all_means[i * threads + self] = means[i];
    all_squares[i * threads + self] = squares[i];
  }
  all_counts[self] = count;
  for (int apart = threads / 2; apart >= gathering.lanes; apart /= 2) {
    __syncthreads();
    if (self >= apart) continue;
    const F other_count = all_counts[self + apart];
#pragma unroll
    for (int i = 0; i < Width; ++i) {
      const int at = i * threads + self;
      Moments<F> moments{all_counts[self], all_means[at], all_squares[at]};
      moments.merge({other_count, all_means[at + apart], all_squares[at + apart]});
      all_means[at] = moments.mean;
      all_squares[at] = moments.squares;
    }
    all_counts[self] += other_count;
  }
  if (row_thread != 0 || !place.holds[0]) return;
  F* partial = static_cast<F*>(tail.norm.workspace) + 2 * blockIdx.y * tail.columns + column;
#pragma unroll
  for (int i = 0; i < Width; ++i) {
    partial[i] = all_means[i * threads + self];
    partial[tail.columns + i] = all_squares[i * threads + self];
  }
}

}  // namespace tailor::cuda
