// A strip of the result, of a linear of few rows: 128 columns, for all rows of a tile, over a part of K. The blocks of a cluster
// have the parts. One warp has the copy engine fill a ring with steps of the weight and of x; two warpgroups multiply, each 64 of the
// columns: the result lies transposed in their accumulators. They leave it in shared memory, where a strip's parts are added up,
// and the tail is computed. What the operands are is another's (few_rows.cuh, few_halves.cuh,
// few_elements.cuh).
#pragma once
#include "block_again.cuh"
#include "tail.cuh"

namespace tailor::hopper {

constexpr int strip_columns = 128;

// A block's part of the sums, for the others of its cluster to read.
template <int tile_rows>
struct StripSums {
  static constexpr int pitch = strip_columns + 4;  // rows do not meet in a bank
  float at[tile_rows][pitch];
};

// What lies where the steps were, once all are done.
template <int tile_rows>
struct AfterSteps {
  StripSums<tile_rows> sums;
  StepAgain again[strip_columns / warp_rows];  // of each warp
};

// `Facts`: what is known of the strip's columns.
template <class Step, class Facts, int vectors, int tile_rows>
struct StripMemory {
  using After = AfterSteps<tile_rows>;
  using Columns = ColumnVectors<vectors, strip_columns>;
  static constexpr int others = sizeof(Columns) + sizeof(Facts) + 1024;
  static constexpr int stages = (shared_limit - others) / static_cast<int>(sizeof(Step));
  static_assert(stages >= 2 && sizeof(After) <= stages * sizeof(Step));

  union {
    Step step[stages];
    After after;
  };
  Columns columns;
  Facts facts;
  std::uint64_t full[stages], empty[stages];
};

// The phases that do not depend on the operands. `Problem` says how many tiles and steps there are.
template <class Chain, class Element_, class Problem, class Memory_, int tile_rows, int group_width>
struct Strip {
  using Element = Element_;  // of the result
  using Memory = Memory_;
  using Now = Part<float, group_width>;
  using Sums = float[tile_rows / 2];
  static constexpr int stages = Memory::stages;
  static constexpr int warps = strip_columns / warp_rows;  // that multiply
  static constexpr bool learns = true;                     // something of the operands

  Memory& memory;
  const Problem& problem;
  const int part = rank_in_cluster();
  const int parts = blocks_in_cluster();
  const int tile = static_cast<int>(blockIdx.x) / parts % problem.tiles();
  const int column = static_cast<int>(blockIdx.x) / parts / problem.tiles() * strip_columns;
  const int first = problem.steps() * part / parts;
  const int steps = problem.steps() * (part + 1) / parts - first;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;

  __device__ __forceinline__ Strip(Memory& of_block, const Problem& given) : memory(of_block), problem(given) {}

  static __device__ __forceinline__ Address barrier(std::uint64_t& which) { return address_of(&which); }

  __device__ __forceinline__ void set_up() {
    if (threadIdx.x == 0) {  // threads that have one each would take turns, and be slower
      for (int i = 0; i < stages; ++i) {
        init_barrier(barrier(memory.full[i]), 1);
        init_barrier(barrier(memory.empty[i]), warps);
      }
      publish_barriers();
    }
    __syncthreads();
  }

  // --- the last warpgroup brings ---

  __device__ __forceinline__ std::uint64_t keep_weight() const { return keep_lines(problem.weight_in_passing); }

  // One thread: fetch_weight(stage, step) and fetch_x(stage, step), of which the former need not wait for the kernel before.
  template <class FetchWeight, class FetchX>
  __device__ __forceinline__ void fetch_all(FetchWeight fetch_weight, FetchX fetch_x) {
    const int at_once = min(stages, steps);
    for (int i = 0; i < at_once; ++i) fetch_weight(i, i);
    cuda::wait_for_kernel_before();
    for (int i = 0; i < at_once; ++i) fetch_x(i, i);
    Ring<stages> ring;
    for (int i = at_once; i < steps; ++i, ring.advance()) {
      wait(barrier(memory.empty[ring.at]), ring.phase);
      fetch_weight(ring.at, i);
      fetch_x(ring.at, i);
    }
  }

  // --- the others multiply ---

  static __device__ __forceinline__ void meet_others() { meet<1>(warps * 32); }

  // Sums, which lie transposed, for all blocks of the cluster to read.
  __device__ __forceinline__ void leave_sums(const Sums& sums) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int to = warp * warp_rows + 8 * row + lane / 4;
#pragma unroll
      for (int at = 0; at < tile_rows / 2; at += 4) {
        float* const pair = &memory.after.sums.at[at * 2 + lane % 4 * 2][to];
        pair[0] = sums[at + 2 * row];
        pair[StripSums<tile_rows>::pitch] = sums[at + 2 * row + 1];
      }
    }
  }

  // --- and finish ---

  // A warp's 16 rows of some columns, as a tail wants them: added up in a fixed order.
  __device__ __forceinline__ typename Now::Value add_up(int row, int from) const {
    typename Now::Value y = {};
    for (int block = 0; block < parts; ++block) {
#pragma unroll
      for (int i = 0; i < Now::width; i += 2) {
#pragma unroll
        for (int at = 0; at < 2; ++at) {
          const Address of_pair =
              address_of(&memory.after.sums.at[row + 8 * at + lane / 4][from + 4 * i + lane % 4 * 2]);
          const float2 pair = read_pair_of(block, of_pair);
          y.at[at][i] += pair.x;
          y.at[at][i + 1] += pair.y;
        }
      }
    }
    return y;
  }

  // Replaces a piece's results whose bit in `doubted` is set: first row's, then the second's.
  __device__ __forceinline__ void compute_again(typename Now::Value& y, std::uint32_t doubted, const FloatMatrix& x,
                                                const FloatMatrix& weight, int row, int from) const {
    static_assert(2 * Now::width <= 32);
    if (!__any_sync(~0u, doubted != 0)) return;
    constexpr int of_block = BlockAgain::own_columns;
#pragma unroll
    for (int first = 0; first < Now::width; first += of_block) {
      constexpr std::uint32_t all = (1u << of_block) - 1;
      const std::uint32_t here = doubted & (all << first | all << (Now::width + first));
      if (!BlockAgain::is_worth_it(here, x, weight)) continue;
      BlockAgain::Results again;
      BlockAgain(memory.after.again[warp], x, tile * tile_rows + row, weight, column + column_of(from, first) / 8 * 8,
                 problem.inner, lane)
          .compute(again);
#pragma unroll
      for (int at = 0; at < 2; ++at) {
#pragma unroll
        for (int i = 0; i < of_block; ++i)
          if ((here >> (at * Now::width + first + i) & 1) != 0) y.at[at][first + i] = again[at][i];
      }
      doubted &= ~here;
    }
#pragma unroll 1
    for (int index = 0; index < 2 * Now::width; ++index) {
      const bool mine = (doubted >> index & 1) != 0;
      const int my_row = tile * tile_rows + row_of(row, index / Now::width);
      const int my_column = column + column_of(from, index % Now::width);
      float again = 0;
      for (std::uint32_t who = __ballot_sync(~0u, mine); who != 0; who &= who - 1) {
        const int from_lane = __ffs(static_cast<int>(who)) - 1;
        const float sum = sum_of_products(x, __shfl_sync(~0u, my_row, from_lane), weight,
                                          __shfl_sync(~0u, my_column, from_lane), problem.inner, lane);
        if (lane == from_lane) again = sum;
      }
#pragma unroll
      for (int at = 0; at < 2; ++at) {
#pragma unroll
        for (int i = 0; i < Now::width; ++i)
          if (mine && at * Now::width + i == index) y.at[at][i] = again;
      }
    }
  }
  // Where a thread's results are: of the tile's rows, and of the strip's columns.
  __device__ __forceinline__ int row_of(int row, int at) const { return row + 8 * at + lane / 4; }
  __device__ __forceinline__ int column_of(int from, int i) const { return from + i / 2 * 8 + lane % 4 * 2 + i % 2; }

  // settle(y, row, from) makes of a piece's sums the linear's results without bias.
  template <class Settle>
  __device__ __forceinline__ void finish_strip(Settle settle) {
    constexpr int height = 16;
    constexpr int across = strip_columns / Now::columns;
    const std::int64_t rows = min(problem.tail.rows - std::int64_t{tile} * tile_rows, std::int64_t{tile_rows});
    const int pieces = static_cast<int>(ceiling(rows, height)) * across;
    for (int piece = warp * parts + part; piece < pieces; piece += warps * parts) {
      const int row = piece / across * height;
      const int from = piece % across * Now::columns;
      auto y = add_up(row, from);
      settle(y, row, from);
#pragma unroll
      for (int i = 0; i < Now::width; i += 2) {
        const float2 bias = memory.columns.of_pair[(from + 4 * i) / 2 + lane % 4][Which<Chain>::bias];
#pragma unroll
        for (int at = 0; at < 2; ++at) {
          y.at[at][i] += bias.x;
          y.at[at][i + 1] += bias.y;
        }
      }
      round_to<Element>(y);
      const auto value = finish<Chain, Element, Now>(problem, memory.columns, y, from, lane);
      write_results<Element>(problem.tail, problem.tail.out, value, tile * tile_rows + row, column + from, lane);
    }
  }
};

// All kinds of strips are computed so: `Phases` say what is brought and multiplied, what is known of the operands (learn), by warps that
// have nothing else to do, and what the blocks of a cluster tell one another of them (exchange). Where nothing is learnt (`learns`),
// those warps bring what belongs to the columns.
template <class Chain, class Phases, class Problem>
__device__ __forceinline__ void compute_strip(const Problem& problem) {
  extern __shared__ __align__(1024) unsigned char shared[];
  Phases phases(*reinterpret_cast<typename Phases::Memory*>(shared), problem);
  phases.set_up();
  // The ways of the two kinds of warps meet nowhere in the program, or the compiler would find few registers for both.
  if (phases.warp < Phases::warps) {
    take_registers<consume_registers>();
    phases.consume();
    cuda::wait_for_kernel_before();
    meet_cluster();
    phases.exchange();
    phases.finish_strip([&](auto& y, int row, int from) { phases.settle(y, row, from); });
    meet_to_leave();  // nobody leaves while another reads his sums
  } else {
    give_registers_back<bring_registers>();
    const auto bring = [&](int warp, int warps) {
      bring_columns<Chain, typename Phases::Element>(problem, phases.column, phases.lane, phases.memory.columns, warp,
                                                     warps);
    };
    if (phases.warp == Phases::warps) {
      if (phases.lane == 0) phases.fetch_steps();
      __syncwarp();
      cuda::wait_for_kernel_before();
      if constexpr (Phases::learns) bring(0, 1);
    } else {
      cuda::wait_for_kernel_before();
      const int warp = phases.warp - Phases::warps - 1;
      constexpr int warps = warps_of_group - 1;
      if constexpr (Phases::learns)
        phases.learn(warp, warps);
      else
        bring(warp, warps);
    }
    meet_cluster();
    meet_to_leave();
  }
}

}  // namespace tailor::hopper
