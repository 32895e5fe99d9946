// How the kernel's work is cut, who does it, and what a block has in shared memory.
#pragma once
#include "block_again.cuh"
#include "precision.cuh"
#include "problem.h"
#include "tiles_plan.h"

namespace tailor::hopper {

constexpr int shared_limit = 232448;  // bytes that a block can have

// They have the same columns and share the weight's blocks, half loaded by each; in turns the same rows, and share x's.
constexpr int cluster_blocks = 2;

// The warpgroups of a block: one brings, two multiply and finish.
constexpr int consumers = 2;
constexpr int warps_of_group = 4;
constexpr int group_threads = 32 * warps_of_group;
constexpr int block_threads = (1 + consumers) * group_threads;
// Registers are dealt out anew of what a block has at its launch, 168 a thread. More than that would wait for ever.
constexpr int bring_registers = 40;
constexpr int consume_registers = 232;
static_assert(bring_registers + consumers * consume_registers <= 168 * (1 + consumers));

constexpr int tile_height = consumers * warpgroup_rows;
constexpr int widest_tile = tile_widths[0];
static_assert(turn_rows % warpgroup_rows == 0);

// What a cluster's blocks finish before they go on to the next.
template <bool in_turns, int width>
struct ClusterTile {
  static constexpr int rows = in_turns ? consumers * turn_rows : cluster_blocks * tile_height;
  static constexpr int columns = in_turns ? cluster_blocks * width : width;
};
constexpr int tile_warps = consumers * warps_of_group;  // that have rows of a tile
constexpr int warp_rows = tile_height / tile_warps;

template <class Element>
constexpr int box_columns = row_bytes / static_cast<int>(sizeof(Element));

// One step of the main loop, for so many rows of x.
template <int pieces, int rows = tile_height, int columns = widest_tile>
struct alignas(1024) Stage {
  unsigned char x[pieces][rows][row_bytes];
  unsigned char w[pieces][columns][row_bytes];
};

// The first `some` go behind all others, which move up: the next are in front.
template <int some, class T, int all>
__device__ __forceinline__ void take_turns(T (&values)[all]) {
  static_assert(all % some == 0);
#pragma unroll
  for (int at = 0; at < some; ++at) {  // one after another: there are no registers for a copy of them
    const T first = values[at];
#pragma unroll
    for (int i = at; i + some < all; i += some) values[i] = values[i + some];
    values[all - some + at] = first;
  }
}

// What belongs to the columns of a tile, in float: `vectors` numbers for each, those of two neighbours side by side.
template <int vectors, int width>
struct ColumnVectors {
  float2 of_pair[width / 2][vectors];
};

// A warp's part of the result on its way out: two blocks of eight rows, swizzled, which the copy engine takes for one.
constexpr int block_rows = 8;
constexpr int block_bytes = block_rows * row_bytes;
struct alignas(1024) Outgoing {
  unsigned char block[2][block_rows][row_bytes];
};

// Results on their way out, of each warp.
template <int of_warp>
struct Results {
  Outgoing of[tile_warps][of_warp];
};
template <>
struct Results<0> {};

// What is known of the halves of a tile's columns.
template <int pieces, int width>
struct ColumnFacts {};
template <int width>
struct ColumnFacts<2, width> {
  RowFacts of[width];
  RowFacts worst;  // in each respect
};

// Where each warp computes results of halves again.
template <int pieces>
struct Again {};
template <>
struct Again<2> {
  StepAgain of[tile_warps];
};

// What each warp has found out about a part's columns, of two parts at a time; and whether what all blocks have found out lies
// with a tile's columns.
template <bool gathers>
struct Moments {};
template <>
struct Moments<true> {
  static constexpr int columns = 32;
  Moment of_part[2][tile_warps][columns];
  std::uint64_t full[2], empty[2];
  std::uint64_t agreed[2];
};

template <class Precision, int vectors, Manner manner, int width>
struct Storage {
  static constexpr bool in_turns = manner == Manner::in_turns;
  static constexpr bool gathers = manner == Manner::gathering || manner == Manner::agreeing;
  static constexpr int rows = in_turns ? turn_rows : tile_height;  // of a step
  // Whether the results of a tile wait in registers while the next is multiplied: packed, or those of a narrow one.
  static constexpr bool overlaps =
      !in_turns && Precision::pieces == 1 && (sizeof(typename Precision::Element) == 2 || width <= 128);
  using Step = Stage<Precision::pieces, rows, width>;
  // Of a warp. Where the tail is not hidden, waiting for the copy engine to have read one is not either.
  static constexpr int outgoing = Precision::pieces == 2 ? 0 : in_turns || overlaps ? 1 : 2;
  static constexpr int others =
      static_cast<int>(sizeof(Outgoing)) * outgoing * tile_warps +
      2 * static_cast<int>(sizeof(ColumnVectors<vectors, width>) + sizeof(ColumnFacts<Precision::pieces, width>)) +
      static_cast<int>(sizeof(Moments<gathers>) + sizeof(Again<Precision::pieces>)) + 1024;
  static constexpr int stages = (shared_limit - others) / static_cast<int>(sizeof(Step));

  Step stage[stages];
  Results<outgoing> results;
  ColumnVectors<vectors, width> columns[2];  // of this tile and the next
  ColumnFacts<Precision::pieces, width> facts[2];
  std::uint64_t stage_full[stages], stage_empty[stages];
  std::uint64_t columns_full[2], columns_empty[2];
  std::uint64_t turn[consumers];
  Moments<gathers> moments;
  Again<Precision::pieces> again;
};

// The tiles of a block, in an order in which blocks that run at the same time read the same rows and columns. Those of the last round
// may be narrow (`narrows`): half as wide, and then a cluster has one of them at most.
template <bool in_turns, int width, bool narrows>
struct Tiles {
  using Cluster = ClusterTile<in_turns, width>;
  const TileProblem& problem;
  const int rank = rank_in_cluster();
  int at = static_cast<int>(blockIdx.x) / cluster_blocks;

  __device__ __forceinline__ bool any() const {
    const int tiles = problem.row_tiles * problem.column_tiles;
    return at < (narrows ? 2 * tiles - problem.wide_tiles : tiles);
  }
  __device__ __forceinline__ bool is_narrow() const { return narrows && at >= problem.wide_tiles; }
  __device__ __forceinline__ void next() { at += static_cast<int>(gridDim.x) / cluster_blocks; }
  __device__ __forceinline__ void locate(int& row, int& column) const {
    const int beyond = is_narrow() ? at - problem.wide_tiles : 0;
    const int tile = is_narrow() ? problem.wide_tiles + beyond / 2 : at;
    const int in_band = tiles_together * problem.column_tiles;
    const int first = tile / in_band * tiles_together;
    const int rows = min(problem.row_tiles - first, tiles_together);
    const int within = tile % in_band;
    row = (first + within % rows) * Cluster::rows + (in_turns ? 0 : rank * tile_height);
    column = within / rows * Cluster::columns + (in_turns ? rank * width : beyond % 2 * (width / 2));
  }
};

// The same where all tiles of a column are there at the same time: a block has the same rows of one column after another. Blocks with
// the same blockIdx.y have the same column.
struct TilesOfRows {
  const TileProblem& problem;
  int at = static_cast<int>(blockIdx.y);

  __device__ __forceinline__ bool any() const { return at < problem.column_tiles; }
  __device__ __forceinline__ bool is_narrow() const { return false; }
  __device__ __forceinline__ void next() { at += problem.agreement.column_tiles_at_once; }
  __device__ __forceinline__ void locate(int& row, int& column) const {
    row = anew(static_cast<int>(blockIdx.x)) * tile_height;
    column = at * widest_tile;
  }
};

// Which place of a ring is next, and in which phase its barriers are.
template <int places>
struct Ring {
  int at = 0;
  std::uint32_t phase = 0;
  __device__ __forceinline__ void advance() {
    if (++at == places) {
      at = 0;
      phase ^= 1;
    }
  }
  __device__ __forceinline__ void skip(int some) {
    at += some;
    phase ^= at / places & 1;
    at %= places;
  }
};

}  // namespace tailor::hopper
