// A chain's tail over the accumulators of a warpgroup: the same formulas over tiles of registers as in cuda/, with what
// belongs to a column in shared memory.
#pragma once
#include "../cuda/memory.cuh"
#include "../cuda/norms.cuh"
#include "precision.cuh"
#include "problem.h"
#include "storage.cuh"

namespace tailor::hopper {

// What belongs to a column, in the order in which it lies in ColumnVectors.
template <class Chain>
struct Which {
  static constexpr int bias = 0;
  static constexpr int vector = 1;  // and those behind it
  static constexpr int norm_bias = vector + vectors_of<Chain>;
  static constexpr int norm_weight = norm_bias + 1;  // of a batch norm: over the deviation
  static constexpr int mean = norm_weight + 1;       // of a batch norm
  static constexpr int count = has_batch_norm<Chain> ? mean + 1 : has_group_norm<Chain> ? mean : norm_bias;
};

// Some columns' values of a vector, all of them under way at a time; `otherwise` where there is none, or no such column.
template <class T, int count>
__device__ __forceinline__ void columns_of(const Operand& operand, const int (&at)[count], std::int64_t columns,
                                           float otherwise, float (&to)[count]) {
  const T* const from = static_cast<const T*>(operand.data);
#pragma unroll
  for (float& value : to) value = otherwise;
  if (from == nullptr) return;
#pragma unroll
  for (int i = 0; i < count; ++i)
    if (at[i] < columns) to[i] = cuda::widen(from[operand.per_column ? at[i] : 0]);
}

template <class Chain, class T, int count>
__device__ __forceinline__ void columns_of_vector(const Problem& problem, int which, const int (&at)[count],
                                                  float (&to)[count]) {
  using Is = Which<Chain>;
  const Tail& tail = problem.tail;
  const NormArguments& norm = tail.norm;
  const auto bring = [&](const Operand& operand, float otherwise, float(&values)[count]) {
    columns_of<T>(operand, at, tail.columns, otherwise, values);
  };
  if (which == Is::bias) return bring({problem.bias, true}, -0.0f, to);
  if (which < Is::norm_bias) return bring(tail.vectors[which - Is::vector], 0, to);
  if (which == Is::norm_bias) return bring({norm.bias, true}, 0, to);
  if (which == Is::mean) return bring({norm.mean, true}, 0, to);
  bring({norm.weight, true}, 1, to);
  if (!has_batch_norm<Chain> || norm.batch_statistics) return;
  float variance[count];
  bring({norm.var, true}, 1, variance);
#pragma unroll
  for (int i = 0; i < count; ++i) to[i] = cuda::scale_of(variance[i], static_cast<float>(norm.eps), to[i]);
}

// A warp brings what belongs to a tile's columns; with `up_to` less than there is, only that. Of `warps` that share the work it is number
// `warp`: a vector is waited for before the next, as registers are few.
template <class Chain, class T, int up_to = Which<Chain>::count, int width>
__device__ __forceinline__ void bring_columns(const Problem& problem, int first, int lane,
                                              ColumnVectors<Which<Chain>::count, width>& to, int warp = 0,
                                              int warps = 1) {
  constexpr int of_lane = width / 32;
  int at[of_lane];
#pragma unroll
  for (int i = 0; i < of_lane; ++i) at[i] = first + 2 * (lane + i / 2 * 32) + i % 2;
#pragma unroll
  for (int which = 0; which < up_to; ++which) {
    if (which % warps != warp) continue;
    float values[of_lane];
    columns_of_vector<Chain, T>(problem, which, at, values);
#pragma unroll
    for (int i = 0; i < of_lane; i += 2) to.of_pair[lane + i / 2 * 32][which] = {values[i], values[i + 1]};
  }
}

// The formula over a few columns of a thread, whole groups where there is a group norm. `first` is the first column of these
// in the tile; a thread has a pair of neighbours in each eight columns, the three lanes beside it have the others.
template <class Chain, class T, int Rows, int Width, class Vectors>
struct Finish : Arithmetic<typename cuda::MathOf<T>::type> {
  using Math = typename cuda::MathOf<T>::type;
  using Value = Tile<float, Rows, Width>;
  using Is = Which<Chain>;

  const Problem& problem;
  const Vectors& columns;  // ColumnVectors of these
  const int first_pair;
  const Value& y;

  __device__ __forceinline__ Finish(const Problem& p, const Vectors& c, int first, int lane, const Value& value)
      : problem(p), columns(c), first_pair(first / 2 + lane % 4), y(value) {}

  __device__ __forceinline__ Columns<float, Width> of_columns(int which) const {
    Columns<float, Width> out;
#pragma unroll
    for (int i = 0; i < Width; i += 2) {
      const float2 pair = columns.of_pair[first_pair + 2 * i][which];
      out.at[i] = pair.x;
      out.at[i + 1] = pair.y;
    }
    return out;
  }
  __device__ __forceinline__ Value linear() const { return y; }
  template <class V>
  __device__ __forceinline__ Columns<float, Width> vector(V) const {
    return of_columns(Is::vector + position_of<Chain, V>);
  }
  template <class S>
  __device__ __forceinline__ float scalar(S) const {
    return static_cast<float>(problem.tail.scalars[position_of<Chain, S>]);
  }
  __device__ __forceinline__ Value batch_norm(const Value& a) {
    return normalise(this->rounded(a), of_columns(Is::mean), of_columns(Is::norm_weight), of_columns(Is::norm_bias));
  }
  __device__ __forceinline__ Value group_norm(const Value& a) {
    const Value v = this->rounded(a);
    const auto weight = of_columns(Is::norm_weight);  // under way while the sums are made
    const auto bias = of_columns(Is::norm_bias);
    constexpr int lanes = 4;
    constexpr float share = 1.0f / (lanes * Width);
    const auto eps = static_cast<float>(problem.tail.norm.eps);
    const auto add_up = [](auto& sums) { cuda::sum_over_lanes(sums, lanes); };
    const auto normed = [&](const auto& found) {
      return normalise(v, found.mean, found.inverse_deviation, weight, bias);
    };
    if constexpr (sizeof(T) == 2)
      return normed(cuda::PairwiseStatistics<Math, float, Rows, Width>(v, eps, share, add_up));
    else
      return normed(cuda::GroupStatistics<Math, float, Rows, Width>(v, eps, share, add_up, add_up));
  }
};

// What a thread's registers have room for beside a part of a tile.
enum class Room : std::uint8_t {
  crowded,  // accumulators that are in use: of a wide group only one of a thread's two rows is taken at a time
  some,     // other results that wait
  ample,    // nothing that is wanted
};

// What is computed at a time: a part of a tile, as registers allow. A larger one has more that does not wait for each other.
template <class Element, int group_width, Room room = Room::some, int of_tile = widest_tile>
struct Part {
  static constexpr int tile_columns = of_tile;
  static constexpr int columns = group_width > 32 || room == Room::ample ? 64 : 32;
  static constexpr int rows = room == Room::crowded && group_width > 32 ? 1 : 2;
  static constexpr int group = group_width > 0 ? group_width : columns;
  static constexpr int width = columns / 4;  // of a thread
  static constexpr int count = tile_columns / columns * (2 / rows);
  using Value = Tile<float, rows, width>;

  static __host__ __device__ constexpr int first_column(int part) { return part * rows / 2 * columns; }
  static __host__ __device__ constexpr int row(int part) { return rows == 2 ? 0 : part % 2; }
};

// Some neighbouring columns of a tile, and back.
template <int Some, int Rows, int Width>
__device__ __forceinline__ Tile<float, Rows, Some> columns_from(const Tile<float, Rows, Width>& tile, int first) {
  Tile<float, Rows, Some> out;
#pragma unroll
  for (int row = 0; row < Rows; ++row) {
#pragma unroll
    for (int i = 0; i < Some; ++i) out.at[row][i] = tile.at[row][first + i];
  }
  return out;
}
template <int Some, int Rows, int Width>
__device__ __forceinline__ void set_columns(Tile<float, Rows, Width>& tile, int first,
                                            const Tile<float, Rows, Some>& some) {
#pragma unroll
  for (int row = 0; row < Rows; ++row) {
#pragma unroll
    for (int i = 0; i < Some; ++i) tile.at[row][first + i] = some.at[row][i];
  }
}

// The chain's values from the linear's. `first` is the part's first column in the tile.
template <class Chain, class T, class Now, class Vectors>
__device__ __forceinline__ auto finish(const Problem& problem, const Vectors& columns, const typename Now::Value& y,
                                       int first, int lane) {
  typename Now::Value out;
  constexpr int width = Now::group / 4;
#pragma unroll
  for (int at = 0; at < Now::width; at += width) {
    const auto of_group = columns_from<width>(y, at);
    Finish<Chain, T, Now::rows, width, Vectors> interpreter(problem, columns, first + 4 * at, lane, of_group);
    set_columns(out, at, Formula<Chain>::fold(interpreter));
  }
  return out;
}

// As eager's linear rounds its result.
template <class T, class Value>
__device__ __forceinline__ void round_to(Value& value) {
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (auto& row : value.at) {
#pragma unroll
      for (float& each : row) {
        T rounded;
        cuda::narrow(each, rounded);
        each = cuda::widen(rounded);
      }
    }
  }
}

// Two neighbours of a row.
__device__ __forceinline__ void write_pair(float* to, const float* pair) {
  *reinterpret_cast<float2*>(to) = make_float2(pair[0], pair[1]);
}
template <class T>
__device__ __forceinline__ void write_pair(T* to, const float* pair) {
  *reinterpret_cast<std::uint32_t*>(to) = pack(pair[0], pair[1], T());
}

// A part of a matrix of the result's size, from registers to memory: of float32 four threads fill sectors of 32 bytes. Where the copy
// engine describes the result, as of 16 bits it always does, rows have an even number of elements. `row` is that of the first of a
// thread's rows for lane 0. Of most parts all columns are there: where each is asked for, that takes as long as a third of a tail.
template <class T, bool even = sizeof(T) == 2, int Rows, int Width>
__device__ __forceinline__ void write_results(const Tail& tail, void* matrix, const Tile<float, Rows, Width>& value,
                                              int row, int column, int lane) {
  const auto rows = static_cast<int>(tail.rows);
  const auto columns = static_cast<int>(tail.columns);
  const bool in_pairs = even || columns % 2 == 0;
  const bool are_there = column + 4 * Width <= columns;
#pragma unroll
  for (int at = 0; at < Rows; ++at) {
    const int to_row = row + lane / 4 + 8 * at;
    if (to_row >= rows) continue;
    const int first = column + lane % 4 * 2;
    T* const to = static_cast<T*>(matrix) + std::int64_t{to_row} * columns + first;
    const float* const from = value.at[at];
    if (in_pairs && are_there) {
#pragma unroll
      for (int i = 0; i < Width; i += 2) write_pair(to + 4 * i, from + i);
    } else {
#pragma unroll
      for (int i = 0; i < Width; i += 2) {
        const int there = columns - first - 4 * i;
        if (in_pairs) {
          if (there > 0) write_pair(to + 4 * i, from + i);
        } else if constexpr (!even) {
          if (there > 0) to[4 * i] = from[i];
          if (there > 1) to[4 * i + 1] = from[i + 1];
        }
      }
    }
  }
}

}  // namespace tailor::hopper
