// What the warps of a block have in common, and its first warpgroup: it brings what the others multiply, and merges what they gather.
#pragma once
// A barrier of the grid is all that is wanted of it, not the standard library that it brings, whose headers want a toolkit of one
// piece.
#define _CG_LIMIT_INCLUDED_DEPENDENCIES
#include <cooperative_groups.h>

#include "agreement.cuh"
#include "halves_beside.cuh"
#include "halves_product.cuh"

namespace tailor::hopper {

template <class Chain, class Precision, int group_width, Manner manner, int width>
struct Block {
  using Element = typename Precision::Element;
  static constexpr bool in_turns = manner == Manner::in_turns;
  static constexpr bool agrees = manner == Manner::agreeing;
  static constexpr bool gathers = manner == Manner::gathering || agrees;
  static constexpr bool of_16_bits = sizeof(Element) == 2;
  // Of TF32 the compiler puts a wait behind each product as soon as there are two kinds of them (its note C7515).
  static constexpr bool is_tf32 = !of_16_bits && Precision::pieces == 1;
  static constexpr bool narrows = manner == Manner::side_by_side && !is_tf32 && width == widest_tile;
  using Order = std::conditional_t<agrees, TilesOfRows, Tiles<in_turns, width, narrows>>;
  using Memory = Storage<Precision, Which<Chain>::count, manner, width>;
  static constexpr int step = box_columns<typename Precision::Operand>;  // of the operands
  static constexpr int stages = Memory::stages;
  static constexpr int pieces = Precision::pieces;
  static_assert(stages * pieces >= 3);
  static constexpr bool overlaps = Memory::overlaps;
  // Of halves, whose tails have nothing beside them either, larger parts were no faster, and slower with two swishes.
  static constexpr Room room = overlaps && of_16_bits               ? Room::crowded
                               : overlaps || gathers || pieces == 2 ? Room::some
                               : in_turns && !of_16_bits            ? Room::some
                                                                    : Room::ample;
  using Now = Part<Element, group_width, room, width>;
  // Of a tile that no other is multiplied beside.
  using Last = std::conditional_t<gathers, Now, Part<Element, group_width, Room::ample, width>>;
  static_assert(overlaps || !agrees);
  static_assert(width == widest_tile || !gathers);
  static constexpr int turns = in_turns ? consumers : 1;  // that a tile's products take

  Memory& memory;
  const TileProblem& problem;
  const int steps;  // of the main loop

  static __device__ __forceinline__ Address barrier(std::uint64_t& which) { return address_of(&which); }

  __device__ __forceinline__ void set_up() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < stages; ++i) {
        init_barrier(barrier(memory.stage_full[i]), 1);
        init_barrier(barrier(memory.stage_empty[i]), consumers / turns * cluster_blocks);
      }
      for (int i = 0; i < 2; ++i) {
        init_barrier(barrier(memory.columns_full[i]), 32);
        // Of every lane, though one could speak for a warp that has met: the sanitizer does not believe it.
        init_barrier(barrier(memory.columns_empty[i]), tile_warps * 32);
      }
      for (int i = 0; i < consumers; ++i) init_barrier(barrier(memory.turn[i]), warps_of_group);
      if constexpr (gathers) {
        for (int i = 0; i < 2; ++i) {
          init_barrier(barrier(memory.moments.full[i]), tile_warps);
          init_barrier(barrier(memory.moments.empty[i]), 1);
          init_barrier(barrier(memory.moments.agreed[i]), 2 * 32);
        }
      }
      publish_barriers();
    }
    meet_cluster();
  }

  // The blocks are all there at the same time, or this would never end: the launch sees to it.
  __device__ __forceinline__ void begin_agreement() {
    Agreeing<Chain, Element>{problem}.forget_all();
    cooperative_groups::this_grid().sync();
  }

  static_assert(pieces != 2 || (!in_turns && rows_asked_for % Memory::rows == 0),
                "a tile's rows are asked for together");

  // A step of x where it lies transposed: lines of 64 of its rows, for each warpgroup.
  template <class Piece>
  __device__ __forceinline__ void fetch_lines(Piece& to, Address full, int piece, int at, int row) const {
#pragma unroll
    for (int group = 0; group < consumers; ++group) {
      const int own = row + group * warpgroup_rows;
      fetch_box(problem.x, address_of(to[group * warpgroup_rows]), full, place_of_half(own) + piece * step, at * step);
    }
  }

  // One thread: fills the ring.
  __device__ __forceinline__ void fetch_stages() {
    // In turns the weight is read again for the other turn.
    const std::uint64_t of_weight = keep_lines(!in_turns && problem.weight_in_passing), of_x = keep_lines(false);
    constexpr std::uint16_t both = (1 << cluster_blocks) - 1;
    Ring<stages> ring;
    for (Order tile{problem}; tile.any(); tile.next()) {
      int row, column;
      tile.locate(row, column);
      const bool is_narrow = tile.is_narrow();
      const int columns = is_narrow ? width / 2 : width;
      const int part = rank_in_cluster() * ((in_turns ? Memory::rows : columns) / cluster_blocks);  // of what is shared
      if constexpr (pieces == 2) wait_for_rows(problem.halves, row);
      for (int turn = 0; turn < turns; ++turn, row += Memory::rows) {
        for (int i = 0; i < steps; ++i) {
          wait(barrier(memory.stage_empty[ring.at]), ring.phase ^ 1);
          auto& to = memory.stage[ring.at];
          const Address full = barrier(memory.stage_full[ring.at]);
          arrive_and_expect(full, sizeof(to) - (is_narrow ? sizeof(to.w) / 2 : 0));
#pragma unroll
          for (int piece = 0; piece < pieces; ++piece) {  // side by side in a row
            const int from = (pieces * i + piece) * step;
            if constexpr (in_turns) {
              fetch_box_for(problem.x, address_of(to.x[piece][part]), full, from, row + part, of_x, both);
              fetch_box(problem.w, address_of(to.w[piece]), full, from, column, of_weight);
            } else {
              if constexpr (x_lies<Precision>)
                fetch_lines(to.x[piece], full, piece, i, row);
              else
                fetch_box(problem.x, address_of(to.x[piece]), full, from, row);
              fetch_box_for(is_narrow ? problem.narrow_w : problem.w, address_of(to.w[piece][part]), full, from,
                            column + part, of_weight, both);
            }
          }
          ring.advance();
        }
      }
    }
    // The other block arrives at this one's barriers until it has read the last stage.
    for (int i = 0; i < stages; ++i, ring.advance()) wait(barrier(memory.stage_empty[ring.at]), ring.phase ^ 1);
  }

  // One warp: a tile ahead of those that compute.
  __device__ __forceinline__ void prepare_columns(int lane) {
    Ring<2> ring;
    constexpr int known = agrees ? Which<Chain>::mean : gathers ? Which<Chain>::norm_bias : Which<Chain>::count;
    for (Order tile{problem}; tile.any(); tile.next(), ring.advance()) {
      int row, column;
      tile.locate(row, column);
      wait(barrier(memory.columns_empty[ring.at]), ring.phase ^ 1);
      bring_columns<Chain, Element, known>(problem, column, lane, memory.columns[ring.at]);
      bring_facts(problem, column, lane, memory.facts[ring.at]);
      arrive(barrier(memory.columns_full[ring.at]));
    }
  }

  // Two warps merge what the others have gathered, and put it down for the tail's kernel, or agree on it with other blocks.
  __device__ __forceinline__ void put_parts_down(int which, int lane) {
    for (Order tile{problem}; tile.any(); tile.next()) {
      int row, column;
      tile.locate(row, column);
      merge_parts<Now>(memory.moments, tile, which, lane, [&](int at, const Moment& all) {
        cuda::put_partial(problem.tail, row / tile_height, at, all.x, all.y);
      });
    }
  }
  __device__ __forceinline__ void agree() {
    int round = 0;
    for (Order tile{problem}; tile.any(); tile.next(), ++round) {
      const Agreeing<Chain, Element> blocks{problem};
      int row, column;
      tile.locate(row, column);
      merge_parts<Now>(memory.moments, tile, blocks.which(), blocks.lane(),
                       [&](int at, const Moment& all) { blocks.say(at, all); });
      blocks.merge_share(column);
      blocks.bring(column, memory.columns[round % 2]);
      arrive(barrier(memory.moments.agreed[round % 2]));
      blocks.keep_share(column);
    }
  }
};

}  // namespace tailor::hopper
