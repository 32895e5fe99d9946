// Which rows and columns a thread has, and how it reads and writes them.
#pragma once
#include "../arithmetic.h"
#include "layout.h"
#include "memory.cuh"

namespace tailor::cuda {

struct Place {
  std::int64_t column = 0;  // the first of its packet
  bool holds = false;       // without a packet, a thread only takes part in shuffles and barriers
  int first_row = 0;
  int row_step = 1;

  Place() = default;
  __device__ __forceinline__ Place(const Layout& layout, int width) {
    const int slots = most_threads / layout.lanes;
    const int slot = static_cast<int>(threadIdx.x) / layout.lanes;
    const int lane = static_cast<int>(threadIdx.x) % layout.lanes;
    std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * slots + slot;
    int row_in_pass = 0;
    if (layout.groups < slots) {
      row_in_pass = slot / static_cast<int>(layout.groups);
      group = slot % static_cast<int>(layout.groups);
    }
    const std::int64_t within = static_cast<std::int64_t>(lane) * width;
    holds = group < layout.groups && row_in_pass < layout.rows_per_pass && within < layout.group_width;
    column = group * layout.group_width + within;
    first_row = static_cast<int>(blockIdx.y) * layout.rows_per_pass + row_in_pass;
    row_step = static_cast<int>(gridDim.y) * layout.rows_per_pass;
  }
};

// The values of a vector for the columns of a thread.
template <class T, int Width>
__device__ __forceinline__ auto columns_of(const Operand& operand, const Place& place, Compute<T> otherwise = 0) {
  Columns<Compute<T>, Width> out;
  const T* data = static_cast<const T*>(operand.data);
  if (data != nullptr && operand.per_column && place.holds) {
    load<Width>(data + place.column, out.at);
  } else {
    const Compute<T> value = data != nullptr && !operand.per_column ? widen(*data) : otherwise;
#pragma unroll
    for (int i = 0; i < Width; ++i) out.at[i] = value;
  }
  return out;
}

template <class Chain, class T, int Rows, int Width>
using LeavesOf = Leaves<Chain, typename MathOf<T>::type, Compute<T>, Rows, Width>;

template <class Chain, class T, int Width>
__device__ __forceinline__ auto operands_of(const Tail& tail, const Place& place) {
  Operands<Chain, Compute<T>, Width> operands;
#pragma unroll
  for (int i = 0; i < vectors_of<Chain>; ++i) operands.vectors[i] = columns_of<T, Width>(tail.vectors[i], place);
#pragma unroll
  for (int i = 0; i < scalars_of<Chain>; ++i) operands.scalars[i] = static_cast<Compute<T>>(tail.scalars[i]);
  return operands;
}

// All threads of a block make the same number of rounds: shuffles and barriers need them all.
__device__ __forceinline__ int rounds_of_block(const Tail& tail, const Layout& layout, int rows_at_once) {
  const int first = static_cast<int>(blockIdx.y) * layout.rows_per_pass;
  const int step = static_cast<int>(gridDim.y) * layout.rows_per_pass * rows_at_once;
  return ceiling(max(static_cast<int>(tail.rows) - first, 0), step);
}

// A thread's way down its columns: where it is, as an offset, and how many of its rows are left.
struct Marching {
  std::int64_t offset;
  std::int64_t stride;
  int left;

  __device__ __forceinline__ Marching(const Tail& tail, const Place& place)
      : Marching(tail.columns, static_cast<int>(tail.rows), place) {}
  __device__ __forceinline__ Marching(std::int64_t columns, int end, const Place& place)
      : offset(place.first_row * columns + place.column),
        stride(place.row_step * columns),
        left(place.holds && place.first_row < end ? (end - place.first_row + place.row_step - 1) / place.row_step : 0) {
  }
  __device__ __forceinline__ void advance(int rows) {
    offset += rows * stride;
    left -= rows;
  }
};

// The next rows of a thread as they lie in memory, zero where there are none. Fetched one round ahead, so that the memory
// works while the thread computes.
template <class T, int Rows, int Width>
struct Fetched {
  Packet<T, Width> rows[Rows];

  __device__ __forceinline__ Fetched(const void* y, const Marching& from) {
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      if (r < from.left)
        rows[r] = fetch<Width>(static_cast<const T*>(y) + from.offset + r * from.stride);
      else
        rows[r] = {};
    }
  }

  __device__ __forceinline__ auto tile() const {
    Tile<Compute<T>, Rows, Width> out;
#pragma unroll
    for (int r = 0; r < Rows; ++r) unpack(rows[r], out.at[r]);
    return out;
  }
};

template <class T, int Rows, int Width>
__device__ __forceinline__ void store_tile(const Tile<Compute<T>, Rows, Width>& tile, void* out, const Marching& to) {
#pragma unroll
  for (int r = 0; r < Rows; ++r)
    if (r < to.left) store<Width>(tile.at[r], static_cast<T*>(out) + to.offset + r * to.stride);
}

}  // namespace tailor::cuda
