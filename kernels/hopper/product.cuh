// What a warpgroup has of a tile once its products are done, and how that leaves. A thread has two rows, eight apart, and of
// each a pair of neighbours in each eight columns.
#pragma once
#include "tail.cuh"

namespace tailor::hopper {

// The linear's result of a whole tile, rounded as eager's linear rounds it, two numbers a register, so that the accumulators
// are free for the next tile. Parts leave it in front, and come back behind where they are wanted again: registers have no index
// at run time, and a copy of the tail for each part would be a long program.
template <class Element, class Now, bool again = false, bool beside_others = true>
struct Waiting {
  using Accumulators = Accumulator<Now::tile_columns>;
  static constexpr int all = Now::tile_columns / 4;
  static constexpr int of_part = all / Now::count;
  std::uint32_t pairs[all] = {};

  __device__ __forceinline__ explicit Waiting(Accumulators&) {}
  static constexpr int index(int row, int eight) {  // of the pair in columns 8 · eight …
    constexpr int of_columns = Now::columns / 8;
    const int before = eight / of_columns;
    const int within = eight % of_columns;
    return Now::rows == 2 ? before * of_part + 2 * within + row : (2 * before + row) * of_part + within;
  }
  // The first `count` columns.
  template <int bias, int count = Now::tile_columns, class Vectors>
  __device__ __forceinline__ void take(const Accumulators& sums, const Vectors& columns, int lane) {
#pragma unroll
    for (int eight = 0; eight < count / 8; ++eight) {
      const float2 add = columns.of_pair[4 * eight + lane % 4][bias];
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float* sum = sums + 4 * eight + 2 * row;
        pairs[index(row, eight)] = pack(sum[0] + add.x, sum[1] + add.y, Element());
      }
    }
  }
  // `Some`: a part, or two of them that are taken as one, neighbours or a row each.
  template <class Some = Now>
  __device__ __forceinline__ auto next() {
    constexpr int taken = Some::rows * Some::width / 2;
    static_assert(taken == of_part || Some::rows == 2);
    if constexpr (again) take_turns<taken>(pairs);
    typename Some::Value y;
#pragma unroll
    for (int i = 0; i < taken; ++i) {
      const float2 pair = unpack(pairs[again ? all - taken + i : i], Element());
      const int row = Now::rows == 2 ? i % 2 : i / of_part;
      const int at = Now::rows == 2 ? i / 2 * 2 : i % of_part * 2;
      y.at[row][at] = pair.x;
      y.at[row][at + 1] = pair.y;
    }
    if constexpr (!again) {
#pragma unroll
      for (int i = 0; i + taken < all; ++i) pairs[i] = pairs[i + taken];
    }
    return y;
  }
};

// Of float32, the accumulators themselves. They move up too: a tail for each part would be a long program, and where a block
// has few tiles, fetching it takes longer than moving registers.
template <class Now>
struct Waiting<float, Now, false, false> {
  using Accumulators = Accumulator<Now::tile_columns>;
  Accumulators& sums;

  __device__ __forceinline__ explicit Waiting(Accumulators& accumulator) : sums(accumulator) {}
  template <int bias, int count = Now::tile_columns, class Vectors>
  __device__ __forceinline__ void take(const Accumulators&, const Vectors& columns, int lane) {
#pragma unroll
    for (int i = 0; i < count / 2; ++i) {
      const float2 add = columns.of_pair[i / 4 * 4 + lane % 4][bias];
      sums[i] += i % 2 == 0 ? add.x : add.y;
    }
  }
  template <class Some = Now>
  __device__ __forceinline__ auto next() {
    constexpr int of_part = 2 * Some::width;
    typename Some::Value y;
#pragma unroll
    for (int i = 0; i < Some::width; ++i) {
#pragma unroll
      for (int row = 0; row < Some::rows; ++row) y.at[row][i] = sums[i / 2 * 4 + 2 * row + i % 2];
    }
#pragma unroll
    for (int i = 0; i + of_part < Now::tile_columns / 2; ++i) sums[i] = sums[i + of_part];
    return y;
  }
};

// Of a tile of 128 columns there is room for both.
template <class Now>
struct Waiting<float, Now, false, true> {
  using Accumulators = Accumulator<Now::tile_columns>;
  Accumulators kept = {};

  __device__ __forceinline__ explicit Waiting(Accumulators&) {}
  template <int bias, int count = Now::tile_columns, class Vectors>
  __device__ __forceinline__ void take(const Accumulators& sums, const Vectors& columns, int lane) {
#pragma unroll
    for (int i = 0; i < count / 2; ++i) kept[i] = sums[i];
    Waiting<float, Now, false, false>(kept).template take<bias, count>(sums, columns, lane);
  }
  template <class Some = Now>
  __device__ __forceinline__ auto next() {
    return Waiting<float, Now, false, false>(kept).template next<Some>();
  }
};

// 16 bytes of a block, where the copy engine's swizzle has them.
__device__ __forceinline__ Address chunk_of(Address block, int row, int chunk) {
  return block + static_cast<Address>(row * row_bytes + (chunk ^ row) * 16);
}

// A part of the result, of 16 bits, into the two blocks of an Outgoing: a thread's two rows of the same columns. One part fills
// them or two: side by side, or of a wide group one row after the other.
template <class Element, class Now>
struct Exit {
  static constexpr int parts = 2 * box_columns<Element> / (Now::columns * Now::rows);
  static_assert(parts == 1 || parts == 2);

  static __device__ __forceinline__ void put(Address to, const typename Now::Value& value, int part, int lane) {
    // An instruction stores four matrices of 8 × 8; a lane has the address of one row of one of them.
    const int matrix = lane / 8;
#pragma unroll
    for (int i = 0; i < Now::columns / 8 * Now::rows; i += 4) {
      std::uint32_t bits[4];
#pragma unroll
      for (int at = 0; at < 4; ++at) {
        const int row = Now::rows == 2 ? at % 2 : 0;
        const int pair = Now::rows == 2 ? (i + at) / 2 : i + at;
        bits[at] = pack(value.at[row][2 * pair], value.at[row][2 * pair + 1], Element());
      }
      const int eight = Now::first_column(part) / 8 + (Now::rows == 2 ? i / 2 + matrix / 2 : i + matrix);
      const int block = Now::rows == 2 ? matrix % 2 : Now::row(part);
      store_matrices(chunk_of(to + block * block_bytes, lane % 8, eight % 8), bits[0], bits[1], bits[2], bits[3]);
    }
  }
};

// 32 columns of floats from column `from` of a part on: a thread's two rows, one in each block.
template <int Width>
__device__ __forceinline__ void put_floats(Address to, const Tile<float, 2, Width>& value, int from, int lane) {
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float* pair = value.at[row] + from / 4 + i;
      store_pair(chunk_of(to + row * block_bytes, lane / 4, i + lane % 4 / 2) + lane % 2 * 8, pair[0], pair[1]);
    }
  }
}

// The way of a warp's results out of the block.
template <class Memory>
struct WayOut {
  Memory& memory;
  const TileProblem& problem;
  const int warp, lane;
  int turn = 0;

  __device__ __forceinline__ Address here() const { return address_of(&memory.results.of[warp][turn]); }
  __device__ __forceinline__ Address next() {
    if (lane == 0) wait_until_read<Memory::outgoing - 1>();
    __syncwarp();
    return here();
  }
  __device__ __forceinline__ void send(int column, int row) {  // both blocks
    show_to_copy_engine();
    __syncwarp();
    if (lane == 0) {
      store_box(problem.out, here(), column, row);
      close_group_of_stores();
    }
    turn = (turn + 1) % Memory::outgoing;
  }
};

}  // namespace tailor::hopper
