// A strip of the result, of a linear of few rows: 128 columns, for all rows of a tile, over a part of K. The blocks of a cluster
// have the parts. One warp has the copy engine fill a ring with steps of the weight and of x; two warpgroups multiply, each 64 of the
// columns: the result lies transposed in their accumulators. They leave it in shared memory, where a strip's parts are added up,
// and the tail is computed. What the operands are is another's (few_rows.cuh, few_halves.cuh,
// few_elements.cuh).
#pragma once
#include "block_again.cuh"
#include "strips_plan.h"
#include "tail.cuh"

namespace tailor::hopper {

constexpr int strip_columns = 128;
constexpr int sums_pitch = strip_columns + 4;  // rows of sums do not meet in a bank

struct StripProblem : Problem {
  int tile_rows = 0;
  int tiles = 0;  // of x's rows
  int steps = 0;  // of K
};

// What lies where the steps were, once all are done.
template <int rows>
struct AfterSteps {
  float sums[rows][sums_pitch];                // a block's part, for the others of its cluster to read
  StepAgain again[strip_columns / warp_rows];  // of each warp
};

// A block's shared memory, the same for tiles of all heights but for how many steps fit. `Step_`: one, of so many of x's rows; `Facts`: what
// is known of the strip's columns.
template <template <int> class Step_, class Rows_, class Facts, int vectors>
struct StripMemory {
  template <int tile_rows>
  using Step = Step_<tile_rows>;
  using Rows = Rows_;
  using After = AfterSteps<Rows::most>;
  using Columns = ColumnVectors<vectors, strip_columns>;
  static constexpr int others = sizeof(Columns) + sizeof(Facts) + 1024;
  static constexpr int room = (shared_limit - others) / 1024 * 1024;
  template <int tile_rows>
  static constexpr int stages = room / static_cast<int>(sizeof(Step<tile_rows>));
  static_assert(stages<Rows::most> >= 2);

  Columns columns;
  Facts facts;
  std::uint64_t full[stages<Rows::fewest>], empty[stages<Rows::fewest>];
  union {
    alignas(1024) unsigned char steps[room];
    After after;
  };

  template <int tile_rows>
  __device__ __forceinline__ Step<tile_rows>& step(int stage) {
    return reinterpret_cast<Step<tile_rows>*>(steps)[stage];
  }

  // What a launch asks for whose tiles are so high. Not the whole: blocks of the kernel before it are to fit beside it.
  static std::size_t bytes(int tile_rows) { return sizeof(StripMemory) - room + bytes_of_steps(Rows(), tile_rows); }

 private:
  template <int... each>
  static int bytes_of_steps(TileRows<each...>, int rows) {
    static_assert(((sizeof(After) <= stages<each> * sizeof(Step<each>)) && ...));
    return ((rows == each ? stages<each> * static_cast<int>(sizeof(Step<each>)) : 0) + ...);
  }
};

// do_it.operator()<rows>() for one of these.
template <int... each, class Do>
__device__ __forceinline__ void by_tile_rows(TileRows<each...>, int rows, Do do_it) {
  (void)((rows == each && (do_it.template operator()<each>(), true)) || ...);
}

// The phases that do not depend on the operands, nor on a tile's height.
template <class Chain, class Element_, class Problem, class Memory_, int group_width>
struct Strip {
  using Element = Element_;  // of the result
  using Memory = Memory_;
  using Now = Part<float, group_width>;
  template <int tile_rows>
  using Sums = float[tile_rows / 2];
  static constexpr int warps = strip_columns / warp_rows;  // that multiply
  static constexpr bool learns = true;                     // something of the operands

  Memory& memory;
  const Problem& problem;
  const int part = rank_in_cluster();
  const int parts = blocks_in_cluster();
  const int tile = static_cast<int>(blockIdx.x) / parts % problem.tiles;
  const int first_row = tile * problem.tile_rows;
  const int column = static_cast<int>(blockIdx.x) / parts / problem.tiles * strip_columns;
  const int first = problem.steps * part / parts;
  const int steps = problem.steps * (part + 1) / parts - first;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;

  __device__ __forceinline__ Strip(Memory& of_block, const Problem& given) : memory(of_block), problem(given) {}

  static __device__ __forceinline__ Address barrier(std::uint64_t& which) { return address_of(&which); }

  // One thread: if each had a barrier they would take turns, and be slower.
  __device__ __forceinline__ void set_up(int stages) {
    for (int i = 0; i < stages; ++i) {
      init_barrier(barrier(memory.full[i]), 1);
      init_barrier(barrier(memory.empty[i]), warps);
    }
    publish_barriers();
  }

  // --- the last warpgroup brings ---

  __device__ __forceinline__ std::uint64_t keep_weight() const { return keep_lines(problem.weight_in_passing); }

  // One thread: fetch_weight(stage, step) and fetch_x(stage, step), of which the former need not wait for the kernel before.
  template <int stages, class FetchWeight, class FetchX>
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
  template <int results>
  __device__ __forceinline__ void leave_sums(const float (&sums)[results]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int to = warp * warp_rows + 8 * row + lane / 4;
#pragma unroll
      for (int at = 0; at < results; at += 4) {
        float* const pair = &memory.after.sums[at * 2 + lane % 4 * 2][to];
        pair[0] = sums[at + 2 * row];
        pair[sums_pitch] = sums[at + 2 * row + 1];
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
          const Address of_pair = address_of(&memory.after.sums[row + 8 * at + lane / 4][from + 4 * i + lane % 4 * 2]);
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
      BlockAgain(memory.after.again[warp], x, first_row + row, weight, column + column_of(from, first) / 8 * 8,
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
      const int my_row = first_row + row_of(row, index / Now::width);
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
    const std::int64_t rows = min(problem.tail.rows - first_row, std::int64_t{problem.tile_rows});
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
      write_results<Element>(problem.tail, problem.tail.out, value, first_row + row, column + from, lane);
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
  const auto by_rows = [&](auto do_it) { by_tile_rows(typename Phases::Memory::Rows(), problem.tile_rows, do_it); };
  if (threadIdx.x == 0) by_rows([&]<int tile_rows>() { phases.set_up(Phases::Memory::template stages<tile_rows>); });
  __syncthreads();
  // The ways of the two kinds of warps meet nowhere in the program, or the compiler would find few registers for both.
  if (phases.warp < Phases::warps) {
    take_registers<consume_registers>();
    by_rows([&]<int tile_rows>() { phases.template consume<tile_rows>(); });
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
      if (phases.lane == 0) by_rows([&]<int tile_rows>() { phases.template fetch_steps<tile_rows>(); });
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
