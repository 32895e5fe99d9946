// A linear and its chain's tail in one kernel, for Hopper.
//
// One block a multiprocessor, which takes tile after tile. Its first warpgroup brings: one thread has the copy engine fill a
// ring of stages with steps of x and w, a warp prepares what belongs to the next tile's columns. The two others multiply, each
// its half of the rows. With 16-bit elements they then round the product, as eager's linear does, into half as many registers,
// and compute its tail part by part while the tensor cores work on the next tile; with float32 there is room for that beside
// narrow tiles only, else the tail comes first. Where statistics of a whole batch come between, they gather those first, two warps of the first merge
// them, and the blocks that share columns agree on them while the next tile is multiplied; or the tail is left to another kernel.
// Or the two warpgroups take turns, each with tiles of its own: while one multiplies, the other computes its tail.
// docs/kernels.md draws it.
#pragma once
#include "block.cuh"
#include "halves_product.cuh"
#include "product.cuh"

namespace tailor::hopper {

// The warpgroups that multiply and finish.
template <class Chain, class Precision, int group_width, Manner manner, int width>
struct Kernel : Block<Chain, Precision, group_width, manner, width> {
  using Base = Block<Chain, Precision, group_width, manner, width>;
  using Base::agrees;
  using Base::barrier;
  using Base::gathers;
  using Base::in_turns;
  using Base::memory;
  using Base::narrows;
  using Base::of_16_bits;
  using Base::overlaps;
  using Base::pieces;
  using Base::problem;
  using Base::stages;
  using Base::steps;
  using typename Base::Element;
  using typename Base::Last;
  using typename Base::Memory;
  using typename Base::Now;
  using typename Base::Order;
  using Way = WayOut<Memory>;
  static constexpr int box = box_columns<Element>;            // of the result
  static constexpr int narrow = narrows ? width / 2 : width;  // columns of a narrow tile, where there are some
  static constexpr int row_blocks = in_turns ? turn_rows / warpgroup_rows : 1;  // that a warpgroup has of a tile

  // The steps of a warpgroup's main loop. Two are under way at most.
  struct Products {
    using Sums = Accumulator<width>[row_blocks];
    Kernel& kernel;
    const int group, thread;
    Ring<stages> ring;
    int before = -1, last = -1;  // stages that are being read

    template <int columns = width>
    __device__ __forceinline__ void issue(Sums& sums, bool add) {
      wait(barrier(kernel.memory.stage_full[ring.at]), ring.phase);
      const auto& from = kernel.memory.stage[ring.at];
      const std::uint64_t w = describe_block(address_of(from.w[0]));
      begin_products();
#pragma unroll
      for (int block = 0; block < row_blocks; ++block) {
        const int row = (in_turns ? block : group) * warpgroup_rows;
        const std::uint64_t x = describe_block(address_of(from.x[0][row]));
#pragma unroll
        for (int i = 0; i < row_bytes / instruction_bytes; ++i)
          multiply<columns>(reinterpret_cast<Accumulator<columns>&>(sums[block]), x + next_instruction * i,
                            w + next_instruction * i, add || i > 0, Element());
      }
      close_group_of_products();
      before = last;
      last = ring.at;
      ring.advance();
    }
    __device__ __forceinline__ void settle() {  // all but the last
      wait_for_products<1>();
      release(before);
    }
    __device__ __forceinline__ void finish() {
      wait_for_products<0>();
      release(before);
      release(last);
    }
    __device__ __forceinline__ void release(int& stage) {
      if (stage >= 0 && thread < cluster_blocks) arrive_at(barrier(kernel.memory.stage_empty[stage]), thread);
      stage = -1;
    }
  };

  // A tile whose tail is still to be computed, and a warp's place in it.
  struct Unfinished {
    int row = 0, column = 0;
    int columns = 0;         // which of the two buffers
    bool is_last = true;     // that needs them
    bool is_narrow = false;  // then it is a block's last
  };

  // What batch statistics need of a part of a warp's rows.
  __device__ __forceinline__ void gather_part(const typename Now::Value& y, int part, const Unfinished& tile,
                                              const Way& way) {
    const int at = part % 2;
    wait(barrier(memory.moments.empty[at]), part / 2 % 2 ^ 1);
    gather_moments<Chain, Element, Now>(problem, memory.columns[tile.columns], y, Now::first_column(part),
                                        anew(way.lane), min(static_cast<int>(problem.tail.rows) - tile.row, warp_rows),
                                        memory.moments.of_part[at][way.warp]);
    __syncwarp();
    if (way.lane == 0) arrive(barrier(memory.moments.full[at]));
  }

  template <class Value>  // for a backward
  __device__ __forceinline__ void keep_linear(const Value& y, int row, int column, int lane) {
    if (problem.result != nullptr)
      write_results<Element, pieces == 1>(problem.tail, problem.result, y, row, column, lane);
  }

  // One part of the tail of a warp's rows; who only gathers has none.
  template <class Some>
  __device__ __forceinline__ typename Some::Value finish_part(const typename Some::Value& y, int part,
                                                              const Unfinished& tile, const Way& way) {
    const int first = Some::first_column(part);
    if constexpr (!gathers) keep_linear(y, tile.row + 8 * Some::row(part), tile.column + first, way.lane);
    if constexpr (gathers && !agrees) {
      gather_part(y, part, tile, way);
      return y;
    } else {
      return finish<Chain, Element, Some>(problem, memory.columns[tile.columns], y, first, way.lane);
    }
  }

  // And out.
  template <class Some>
  __device__ __forceinline__ void send_part(const typename Some::Value& value, int part, const Unfinished& tile,
                                            Way& way) {
    const int first = Some::first_column(part);
    if constexpr (of_16_bits) {
      using Out = Exit<Element, Some>;
      const Address to = part % Out::parts == 0 ? way.next() : way.here();
      Out::put(to, value, part, way.lane);
      if (part % Out::parts == Out::parts - 1) way.send(tile.column + first / box * box, tile.row);
    } else {
      const int lane = Some::columns > 32 ? anew(way.lane) : way.lane;  // of large parts registers are scarce
#pragma unroll
      for (int from = 0; from < Some::columns; from += box) {
        put_floats(way.next(), value, from, lane);
        way.send(tile.column + first + from, tile.row);
      }
    }
    if (tile.is_last && part + 1 == parts_of<Some>(tile.is_narrow)) arrive(barrier(memory.columns_empty[tile.columns]));
  }

  template <class Some>  // that a tile has
  static __device__ __forceinline__ int parts_of(bool is_narrow) {
    return narrows && is_narrow ? Some::count / 2 : Some::count;
  }

  // All parts of a tile whose tail has nothing beside it.
  template <class Some, class Waits>
  __device__ __forceinline__ void finish_all(Waits& waiting, const Unfinished& tile, Way& way) {
#pragma unroll 1
    for (int part = 0; part < parts_of<Some>(tile.is_narrow); ++part)
      send_part<Some>(finish_part<Some>(waiting.template next<Some>(), part, tile, way), part, tile, way);
  }

  // The products of a tile whose operands are two halves each.
  template <int columns>
  __device__ __forceinline__ void multiply_together(Accumulator<width>& sums, Ring<stages>& ring, int group) {
#pragma unroll 1
    for (int i = 0; i < steps; ++i, ring.advance()) {
      wait(barrier(memory.stage_full[ring.at]), ring.phase);
      add_step<x_lies<Precision>, columns>(sums, memory.stage[ring.at], group);
      give_back(ring.at);
    }
  }
  __device__ __forceinline__ void multiply_apart(Accumulator<width>& sums, Ring<stages>& ring, int group) {
    Accumulator<width> block = {};
    Accumulator<width> lower = {};
    int last = -1;  // stage, of which the lower halves are still read
#pragma unroll 1
    for (int i = 0; i < steps; ++i, ring.advance()) {
      wait(barrier(memory.stage_full[ring.at]), ring.phase);
#pragma unroll
      for (int at = 0; at < width / 2; ++at) sums[at] += block[at];
      begin_step<x_lies<Precision>>(block, lower, memory.stage[ring.at], group);
      wait_for_products<1>();
      if (last >= 0) give_back(last);
      last = ring.at;
    }
    wait_for_products<0>();
    if (last >= 0) give_back(last);
#pragma unroll  // to a block, which is still small: so a sum is rounded once less
    for (int at = 0; at < width / 2; ++at) sums[at] += fmaf(lower[at], problem.halves.reach.down, block[at]);
  }
  __device__ __forceinline__ void give_back(int stage) const {
    const int thread = static_cast<int>(threadIdx.x) % group_threads;
    if (thread < cluster_blocks) arrive_at(barrier(memory.stage_empty[stage]), thread);
  }

  // A warpgroup: its tiles, of operands in two halves. Registers are few: where a tile lies is worked out when its products are done.
  __device__ __forceinline__ void consume_halves(int group) {
    Ring<stages> ring;
    Ring<2> of_columns;
    Accumulator<width> sums;
    for (Order tile{problem}; tile.any(); tile.next()) {
#pragma unroll
      for (float& sum : sums) sum = 0;
      if constexpr (lower_is_apart<width>)
        multiply_apart(sums, ring, group);
      else if (tile.is_narrow())
        multiply_together<narrow>(sums, ring, group);
      else
        multiply_together<width>(sums, ring, group);
      const int thread = anew(static_cast<int>(threadIdx.x)) - group_threads;
      const int lane = thread % 32;
      int row, column;
      tile.locate(row, column);
      row += thread / 32 * warp_rows;
      wait(barrier(memory.columns_full[of_columns.at]), of_columns.phase);
      RowFacts of_rows[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) of_rows[i] = facts_of(problem.halves.x, row + lane / 4 + 8 * i);
      const std::int64_t end = tile.is_narrow() ? std::int64_t{column} + narrow : problem.tail.columns;
      unscale(sums, problem, of_rows, memory.facts[of_columns.at], memory.again.of[thread / 32], row, column, end,
              lane);
      Waiting<Element, Now, false, false> waiting(sums);
      waiting.template take<Which<Chain>::bias>(sums, memory.columns[of_columns.at], lane);
#pragma unroll 1
      for (int part = 0; part < parts_of<Now>(tile.is_narrow()); ++part) {
        const auto y = waiting.next();
        const int first = Now::first_column(part);
        keep_linear(y, row, column + first, lane);
        const auto value = finish<Chain, Element, Now>(problem, memory.columns[of_columns.at], y, first, lane);
        write_results<Element>(problem.tail, problem.tail.out, value, row, column + first, lane);
      }
      arrive(barrier(memory.columns_empty[of_columns.at]));
      of_columns.advance();
    }
  }

  // A warpgroup: its tiles. With 16 bits, one tile's products and the tail of the one before go side by side, part by part:
  // a part is computed while two steps are under way. The second warpgroup comes to each about half a part before the first, so that
  // one of them has the unit for functions while the other has the tensor cores. The last tile's tail has nothing beside it.
  __device__ __forceinline__ void consume(int group) {
    const int thread = static_cast<int>(threadIdx.x) % group_threads;
    // As one number for the warp: what is derived from it takes no thread's time, nor do registers spill where it says how far to go.
    Products products{*this, uniform(group), thread};
    Way way{memory, problem, group * warps_of_group + uniform(thread / 32), thread % 32};
    Ring<2> of_columns;
    bool unfinished = false;
    Unfinished tile;
    typename Products::Sums sums;
    Waiting<Element, Now, agrees, overlaps> waiting(sums[0]);
    constexpr int parts = overlaps ? Now::count : 1;
    constexpr int spans = agrees ? 3 : 1;  // of a tile's steps: to gather beside, to wait, and to finish beside
    constexpr bool staggers = overlaps && of_16_bits;  // TF32 was no faster so
    for (Order next{problem}; next.any() || (agrees && unfinished); next.next()) {
      const int steps_here = next.any() ? steps : 0;
      int done = 0;
      const auto multiply = [&]<int columns>(int until) {
        for (; done < until; ++done) {
          products.settle();
          products.template issue<columns>(sums, done > 0);
        }
      };
      const auto multiply_until = [&](int until) {
        if (next.is_narrow())
          multiply.template operator()<narrow>(until);
        else
          multiply.template operator()<width>(until);
      };
      const auto multiply_before = [&](int part) {
        constexpr int all = 2 * parts * spans;  // halves of parts
        const int some = 2 * part + 2 - (staggers ? products.group : 0);
        multiply_until(steps_here * min(some, all) / all);
      };
      if constexpr (agrees) {
        // All parts for the statistics, time for these to become known, and all parts once more.
#pragma unroll 2
        for (int part = 0; part < parts; ++part) {
          multiply_before(part);
          const auto y = waiting.next();
          if (unfinished) gather_part(y, part, tile, way);
          products.settle();
        }
        multiply_until(steps_here * 2 / 3);
        if (unfinished)  // the ring has gone on since
          wait(barrier(memory.moments.agreed[tile.columns]), of_columns.phase ^ tile.columns);
      }
#pragma unroll 1
      for (int part = 0; part < parts + staggers; ++part) {  // who comes early has steps left in the end
        multiply_before((spans - 1) * parts + part);
        if constexpr (overlaps) {
          const auto y = waiting.next();  // also where there is nothing: registers would spill over a branch
          if (unfinished && part < parts) {
            const auto value = finish_part<Now>(y, part, tile, way);
            if constexpr (staggers)
              products.settle();  // about now the older step is done, and its stage can be filled meanwhile
            send_part<Now>(value, part, tile, way);
          }
        }
      }
      products.finish();
      unfinished = false;
      if (!next.any()) break;

      int row, column;
      next.locate(row, column);
      tile = {row + way.warp * warp_rows, column, of_columns.at, true, next.is_narrow()};
      wait(barrier(memory.columns_full[of_columns.at]), of_columns.phase);
      if (tile.is_narrow)
        waiting.template take<Which<Chain>::bias, narrow>(sums[0], memory.columns[of_columns.at], way.lane);
      else
        waiting.template take<Which<Chain>::bias>(sums[0], memory.columns[of_columns.at], way.lane);
      of_columns.advance();
      if constexpr (overlaps)
        unfinished = true;
      else
        finish_all<Now>(waiting, tile, way);
    }
    if constexpr (overlaps && !agrees) finish_all<Last>(waiting, tile, way);  // every block has had one
    if (way.lane == 0) wait_for_stores();
  }

  // A warpgroup of those that take turns: it multiplies half the rows of a tile, lets the other go on, and computes their tail. A stage's
  // barrier tells one use from the next, but not from the one after that: so neither looks at a stage before its turn.
  __device__ __forceinline__ void consume_in_turns(int group) {
    const int thread = static_cast<int>(threadIdx.x) % group_threads;
    Products products{*this, group, thread};
    products.ring.skip(group * steps);
    Way way{memory, problem, group * warps_of_group + uniform(thread / 32), thread % 32};
    int round = 0;
    for (Order next{problem}; next.any(); next.next(), ++round) {
      typename Products::Sums sums{};                              // zero, or they would live on beside the tail
      wait(barrier(memory.turn[group]), (group ^ 1 ^ round) & 1);  // the first need not wait for its first one
#pragma unroll 1
      for (int i = 0; i < steps; ++i) {
        products.settle();
        products.issue(sums, true);
      }
      if (way.lane == 0) arrive(barrier(memory.turn[group ^ 1]));
      products.finish();
      products.ring.skip(steps);

      int row, column;
      next.locate(row, column);
      row += group * turn_rows + way.warp % warps_of_group * warp_rows;
      wait(barrier(memory.columns_full[round % 2]), round / 2 % 2);
      using Waits = Waiting<Element, Now, false, of_16_bits>;
      Waits waiting[row_blocks] = {Waits(sums[0]), Waits(sums[1]), Waits(sums[2])};
      const auto take = [&](int block) {
        waiting[block].template take<Which<Chain>::bias>(sums[block], memory.columns[round % 2], way.lane);
      };
      if constexpr (of_16_bits) {
#pragma unroll
        for (int block = 0; block < row_blocks; ++block) take(block);
      }
#pragma unroll
      for (int block = 0; block < row_blocks; ++block) {
        if constexpr (!of_16_bits) {
          asm volatile("" ::: "memory");  // or the bias of all blocks is kept, in registers that there are not
          take(block);
        }
        const Unfinished tile{row + block * warpgroup_rows, column, round % 2, block + 1 == row_blocks};
        finish_all<Now>(waiting[block], tile, way);
      }
    }
    if (way.lane == 0) wait_for_stores();
  }
};

template <class Chain, class Precision, int group_width, Manner manner, int width>
__global__ void __cluster_dims__(cluster_blocks, 1, 1) __launch_bounds__(block_threads, 1)
    chain_kernel(const __grid_constant__ TileProblem problem) {
  using Phases = Kernel<Chain, Precision, group_width, manner, width>;
  extern __shared__ __align__(1024) unsigned char shared[];
  Phases phases{*reinterpret_cast<typename Phases::Memory*>(shared), problem,
                (problem.inner + Phases::step - 1) / Phases::step};
  phases.set_up();
  cuda::wait_for_kernel_before();
  if constexpr (manner == Manner::agreeing) phases.begin_agreement();
  const int group = static_cast<int>(threadIdx.x) / group_threads;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (group == 0) {
    give_registers_back<bring_registers>();
    if (threadIdx.x == 0) phases.fetch_stages();
    if (warp == 1) phases.prepare_columns(static_cast<int>(threadIdx.x) % 32);
    if constexpr (Precision::pieces == 2)
      if (warp >= 2) make_rows_beside(problem.halves);
    if constexpr (manner == Manner::gathering)
      if (warp >= 2) phases.put_parts_down(warp - 2, static_cast<int>(threadIdx.x) % 32);
    if constexpr (manner == Manner::agreeing)
      if (warp >= 2) phases.agree();
  } else {
    take_registers<consume_registers>();
    if constexpr (Precision::pieces == 2)
      phases.consume_halves(group - 1);
    else if constexpr (manner == Manner::in_turns)
      phases.consume_in_turns(group - 1);
    else
      phases.consume(group - 1);
  }
}

}  // namespace tailor::hopper
