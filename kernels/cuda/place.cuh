// Which rows and columns a thread has, and how it reads and writes them.
#pragma once
#include "../arithmetic.h"
#include "layout.h"
#include "memory.cuh"

namespace tailor::cuda {

// Where a thread stands.
template <int Width, int Loads>
struct Place {
  std::int64_t column[Loads];  // of its packets
  bool holds[Loads];           // whether the group reaches so far; without any, a thread only takes part in barriers
  std::int64_t first_row;
  std::int64_t row_step;

  __device__ __forceinline__ Place(std::int64_t first_column, bool inside, std::int64_t row, std::int64_t step)
      : column{first_column}, holds{inside}, first_row(row), row_step(step) {
    static_assert(Loads == 1);
  }

  __device__ __forceinline__ explicit Place(const Layout& layout) {
    const int slots = layout.threads / layout.lanes;
    const int slot = static_cast<int>(threadIdx.x) / layout.lanes;
    const int lane = static_cast<int>(threadIdx.x) % layout.lanes;
    std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * slots + slot;
    int row_in_pass = 0;
    if (layout.rows_per_pass > 1 || layout.groups < slots) {
      row_in_pass = slot / static_cast<int>(layout.groups);
      group = slot % static_cast<int>(layout.groups);
    }
    const bool idle = group >= layout.groups || row_in_pass >= layout.rows_per_pass;
    first_row = static_cast<std::int64_t>(blockIdx.y) * layout.rows_per_pass + row_in_pass;
    row_step = static_cast<std::int64_t>(gridDim.y) * layout.rows_per_pass;
#pragma unroll
    for (int i = 0; i < Loads; ++i) {
      const std::int64_t within = (static_cast<std::int64_t>(i) * layout.lanes + lane) * Width;
      holds[i] = !idle && within < layout.group_width;
      column[i] = group * layout.group_width + within;
    }
  }
};

// The values of a vector for the columns of a thread.
template <class T, int Width, int Loads>
__device__ __forceinline__ auto columns_of(const Operand& operand, const Place<Width, Loads>& place,
                                           Compute<T> otherwise = 0) {
  Columns<Compute<T>, Width * Loads> out;
  const T* data = static_cast<const T*>(operand.data);
#pragma unroll
  for (int i = 0; i < Loads; ++i) {
    if (data != nullptr && operand.per_column && place.holds[i]) {
      load<Width>(data + place.column[i], out.at + i * Width);
    } else {
      const Compute<T> value = data != nullptr && !operand.per_column ? widen(*data) : otherwise;
#pragma unroll
      for (int j = 0; j < Width; ++j) out.at[i * Width + j] = value;
    }
  }
  return out;
}

// Operands read when they are needed, for threads that hold too many columns to keep them.
template <class Chain, class T, int Width, int Loads>
struct FetchedOperands {
  const Tail& tail;
  const Place<Width, Loads>& place;

  template <class V>
  __device__ __forceinline__ auto vector(V) const {
    return columns_of<T>(tail.vectors[position_of<Chain, V>], place);
  }
  template <class S>
  __device__ __forceinline__ Compute<T> scalar(S) const {
    return static_cast<Compute<T>>(tail.scalars[position_of<Chain, S>]);
  }
};

// Operands read once.
template <class Chain, class T, int Width>
struct KeptOperands : Operands<Chain, Compute<T>, Width> {
  __device__ __forceinline__ KeptOperands(const Tail& tail, const Place<Width, 1>& place) {
#pragma unroll
    for (int i = 0; i < vectors_of<Chain>; ++i) this->vectors[i] = columns_of<T>(tail.vectors[i], place);
#pragma unroll
    for (int i = 0; i < scalars_of<Chain>; ++i) this->scalars[i] = static_cast<Compute<T>>(tail.scalars[i]);
  }
};

template <class Chain, class T, int Width, int Loads>
struct OperandsOf {
  using type = FetchedOperands<Chain, T, Width, Loads>;
};
template <class Chain, class T, int Width>
struct OperandsOf<Chain, T, Width, 1> {
  using type = KeptOperands<Chain, T, Width>;
};

template <class T, int Rows, int Width, int Loads>
__device__ __forceinline__ auto load_tile(const T* y, std::int64_t columns, std::int64_t first, std::int64_t step,
                                          std::int64_t rows, const Place<Width, Loads>& place) {
  Tile<Compute<T>, Rows, Width * Loads> tile;
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const std::int64_t row = first + r * step;
#pragma unroll
    for (int i = 0; i < Loads; ++i) {
      if (place.holds[i] && row < rows) {
        load<Width>(y + row * columns + place.column[i], tile.at[r] + i * Width);
      } else {
#pragma unroll
        for (int j = 0; j < Width; ++j) tile.at[r][i * Width + j] = 0;
      }
    }
  }
  return tile;
}

template <class T, int Rows, int Width, int Loads>
__device__ __forceinline__ void store_tile(const Tile<Compute<T>, Rows, Width * Loads>& tile, T* out,
                                           std::int64_t columns, std::int64_t first, std::int64_t step,
                                           std::int64_t rows, const Place<Width, Loads>& place) {
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const std::int64_t row = first + r * step;
#pragma unroll
    for (int i = 0; i < Loads; ++i)
      if (place.holds[i] && row < rows) store<Width>(tile.at[r] + i * Width, out + row * columns + place.column[i]);
  }
}

}  // namespace tailor::cuda
