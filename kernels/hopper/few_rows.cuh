// A linear of few rows and its chain's tail in one kernel, of float32. What takes time here is to read the weight, which is done
// once, in float32, and nothing is made of it that outlives the call.
//
// A block has a strip of 128 columns of the result, for all rows of a tile, over a part of K; the blocks of a cluster have the
// parts. One warp has the copy engine fill a ring with steps of the weight and of x. Warpgroups read the weight, a thread its own
// numbers of 64 of the columns, split them into thirds in registers, and multiply: the result lies transposed in their
// accumulators. It leaves them for shared memory, where a strip's parts are added up, and the tail is computed.
#pragma once
#include "again.cuh"
#include "tail.cuh"
#include "thirds.h"
#include "thirds_product.cuh"
#include "thirds_split.cuh"

namespace tailor::hopper {

struct FewRowsProblem : Problem {
  CUtensorMap w;  // the copy engine's description of the weight
  FloatMatrix weight;
  Thirds x;
};

constexpr int strip_columns = 128;
constexpr int strip_box = box_columns<float>;  // numbers of K in 128 bytes
static_assert(strip_box == thirds_step);

template <int tile_rows, int vectors>
struct FewRowsMemory {
  static constexpr int bytes_of_x = 3 * 2 * thirds_step * tile_rows;

  struct alignas(1024) Step {
    unsigned char w[strip_columns][row_bytes];
    unsigned char x[bytes_of_x];
  };
  struct Sums {
    static constexpr int pitch = strip_columns + 4;  // rows do not meet in a bank
    float at[tile_rows][pitch];
  };
  using Columns = ColumnVectors<vectors, strip_columns>;
  static constexpr int others = sizeof(Columns) + 2 * sizeof(float2[strip_columns]) + 1024;
  static constexpr int stages = (shared_limit - others) / static_cast<int>(sizeof(Step));
  static_assert(stages >= 2 && sizeof(Sums) <= stages * sizeof(Step));

  union {
    Step step[stages];
    Sums sums;  // of this block's part, once all steps are done
  };
  Columns columns;
  // Of each row of the weight: its largest number, and whether a third was lost. In this block's part, and in all.
  float2 seen[strip_columns];
  float2 of_weight[strip_columns];
  std::uint64_t full[stages], empty[stages];
};

template <class Chain, int tile_rows, int group_width>
struct FewRows {
  using Memory = FewRowsMemory<tile_rows, Which<Chain>::count>;
  using Now = Part<float, group_width>;
  using Sums = float[tile_rows / 2];
  static constexpr int stages = Memory::stages;
  static constexpr int warps = strip_columns / warp_rows;  // that multiply
  // What thirds of the weight lose, over the share of a result that may be lost. x's largest number is 2^60.
  static constexpr float lost_of_weight = 0x1p-46f;

  Memory& memory;
  const FewRowsProblem& problem;
  const int part = rank_in_cluster();
  const int parts = blocks_in_cluster();
  const int tile = static_cast<int>(blockIdx.x) / parts % problem.x.tiles();
  const int column = static_cast<int>(blockIdx.x) / parts / problem.x.tiles() * strip_columns;
  const int first = problem.x.steps() * part / parts;
  const int steps = problem.x.steps() * (part + 1) / parts - first;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;

  static __device__ __forceinline__ Address barrier(std::uint64_t& which) { return address_of(&which); }

  __device__ __forceinline__ void set_up() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < stages; ++i) {
        init_barrier(barrier(memory.full[i]), 1);
        init_barrier(barrier(memory.empty[i]), warps);
      }
      publish_barriers();
    }
    __syncthreads();
  }

  // --- the last warpgroup brings ---

  __device__ __forceinline__ void fetch_weight(int stage, int step) {
    const Address full = barrier(memory.full[stage]);
    arrive_and_expect(full, sizeof(memory.step[stage].w) + Memory::bytes_of_x);
    fetch_box(problem.w, address_of(memory.step[stage].w), full, (first + step) * strip_box, column);
  }
  __device__ __forceinline__ void fetch_x(int stage, int step) {
    const auto* blocks = static_cast<const unsigned char*>(problem.x.blocks);
    const std::int64_t which = static_cast<std::int64_t>(tile) * problem.x.steps() + first + step;
    fetch_bytes(blocks + which * Memory::bytes_of_x, address_of(memory.step[stage].x), barrier(memory.full[stage]),
                Memory::bytes_of_x);
  }
  // One thread. The weight does not depend on the kernel before, which makes the thirds of x.
  __device__ __forceinline__ void fetch_steps() {
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

  // What a thread sees of its two rows of the weight.
  struct Seen {
    float most[2] = {};
    std::uint32_t rest[2] = {};
  };

  // Its numbers of a step: those of two instructions, as thirds.
  using Operand = std::uint32_t[2][3][4];
  __device__ __forceinline__ void read_weight(int stage, Operand& to, Seen& seen) const {
    const Address from = address_of(memory.step[stage].w[warp * warp_rows + lane / 4]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int chunk = (4 * i + lane % 4) ^ (lane / 4);  // the copy engine's swizzle
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float4 four = load_four(from + 8 * row * row_bytes + chunk * 16);
        float& most = seen.most[row];
        most = fmaxf(fmaxf(most, fmaxf(fabsf(four.x), fabsf(four.y))), fmaxf(fabsf(four.z), fabsf(four.w)));
        std::uint32_t pairs[2][3];
        split_pair(four.x, four.y, pairs[0], seen.rest[row]);
        split_pair(four.z, four.w, pairs[1], seen.rest[row]);
#pragma unroll
        for (int third = 0; third < 3; ++third) {
          to[i][third][row] = pairs[0][third];
          to[i][third][2 + row] = pairs[1][third];
        }
      }
    }
  }

  // A step's products, but for three that are together below 2^-24 of the whole. Asynchronous.
  using Products = ProductsOfThirds<tile_rows>;
  __device__ __forceinline__ void multiply_step(Products& products, const Operand& w, int stage) const {
    begin_products();
    products.multiply_all(w, address_of(memory.step[stage].x));
    close_group_of_products();
  }

  // While the tensor cores work on one step, a thread prepares its part of the next.
  __device__ __forceinline__ void consume() {
    Sums sums = {};
    Seen seen;
    Ring<stages> ring;
    Operand w[2];
    const auto read = [&](Operand& to) {
      wait(barrier(memory.full[ring.at]), ring.phase);
      read_weight(ring.at, to, seen);
    };
    const auto multiply_and_read = [&](const Operand& now, Operand& next, bool any_next) {
      const int stage = ring.at;
      Products products;
      multiply_step(products, now, stage);
      ring.advance();
      if (any_next) read(next);
      wait_for_products<0>();
      if (lane == 0) arrive(barrier(memory.empty[stage]));
      products.add_to(sums);
    };
    if (steps > 0) read(w[0]);
#pragma unroll 1
    for (int i = 0; i < steps; i += 2) {
      multiply_and_read(w[0], w[1], i + 1 < steps);
      if (i + 1 < steps) multiply_and_read(w[1], w[0], i + 2 < steps);
    }
    meet_others();  // the ring is free
    leave(sums, seen);
  }

  // Sums, which lie transposed, and what was seen, for all blocks of the cluster to read.
  __device__ __forceinline__ void leave(const Sums& sums, Seen& seen) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int to = warp * warp_rows + 8 * row + lane / 4;
#pragma unroll
      for (int at = 0; at < tile_rows / 2; at += 4) {
        float* const pair = &memory.sums.at[at * 2 + lane % 4 * 2][to];
        pair[0] = sums[at + 2 * row];
        pair[Memory::Sums::pitch] = sums[at + 2 * row + 1];
      }
      for (int other = 1; other < 4; other *= 2) {
        seen.most[row] = fmaxf(seen.most[row], __shfl_xor_sync(~0u, seen.most[row], other));
        seen.rest[row] |= __shfl_xor_sync(~0u, seen.rest[row], other);
      }
      if (lane % 4 == 0) memory.seen[to] = {seen.most[row], is_lost(seen.rest[row]) ? 1.0f : 0.0f};
    }
  }

  // --- and finish ---

  __device__ __forceinline__ void gather_seen() {
    const int at = static_cast<int>(threadIdx.x);
    if (at >= strip_columns) return;
    float2 all{0, 0};
    for (int block = 0; block < parts; ++block) {
      const float2 one = read_pair_of(block, address_of(&memory.seen[at]));
      all = {fmaxf(all.x, one.x), fmaxf(all.y, one.y)};
    }
    memory.of_weight[at] = all;
  }

  // A warp's 16 rows of some columns, as a tail wants them: added up in a fixed order.
  __device__ __forceinline__ typename Now::Value add_up(int row, int from) const {
    typename Now::Value y = {};
    for (int block = 0; block < parts; ++block) {
#pragma unroll
      for (int i = 0; i < Now::width; i += 2) {
#pragma unroll
        for (int at = 0; at < 2; ++at) {
          const Address of_pair = address_of(&memory.sums.at[row + 8 * at + lane / 4][from + 4 * i + lane % 4 * 2]);
          const float2 pair = read_pair_of(block, of_pair);
          y.at[at][i] += pair.x;
          y.at[at][i + 1] += pair.y;
        }
      }
    }
    return y;
  }

  // From sums of scaled rows to the linear's results: those that are no numbers, or that what was lost may show in, computed again.
  __device__ __forceinline__ void settle(typename Now::Value& y, int row, int from) const {
    const auto row_of = [&](int at) { return row + 8 * at + lane / 4; };
    const auto column_of = [&](int i) { return from + i / 2 * 8 + lane % 4 * 2 + i % 2; };
    std::uint32_t doubted = 0;
    static_assert(2 * Now::width <= 32);
#pragma unroll
    for (int at = 0; at < 2; ++at) {
      if (row_of(at) >= problem.tail.rows) continue;
      const RowOfX facts = problem.x.facts[row_of(at)];
#pragma unroll
      for (int i = 0; i < Now::width; ++i) {
        const float2 of_weight = memory.of_weight[column_of(i)];
        const bool is_zero = facts.is_zero || of_weight.x == 0;  // the result, if it is a number
        const float lost =
            facts.lost * fmaxf(1, of_weight.x) + of_weight.y * lost_of_weight * static_cast<float>(problem.inner);
        const float magnitude = fabsf(y.at[at][i]);
        const bool is_sure = magnitude >= (is_zero ? 0 : lost) && magnitude < INFINITY;
        const bool is_column = column + column_of(i) < problem.tail.columns;
        if (!is_sure && !facts.has_nan && is_column) doubted |= 1u << (at * Now::width + i);
        y.at[at][i] *= facts.unscale;
      }
    }
    if (!__any_sync(~0u, doubted != 0)) return;
#pragma unroll 1
    for (int index = 0; index < 2 * Now::width; ++index) {
      const bool mine = (doubted >> index & 1) != 0;
      const int my_row = row_of(index / Now::width);
      const int my_column = column + column_of(index % Now::width);
      float again = 0;
      for (std::uint32_t who = __ballot_sync(~0u, mine); who != 0; who &= who - 1) {
        const int from_lane = __ffs(static_cast<int>(who)) - 1;
        const float sum = sum_of_products(problem.x.x, __shfl_sync(~0u, my_row, from_lane), problem.weight,
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

  __device__ __forceinline__ void finish_strip() {
    constexpr int height = 16;
    constexpr int across = strip_columns / Now::columns;
    const std::int64_t rows = min(problem.tail.rows - std::int64_t{tile} * tile_rows, std::int64_t{tile_rows});
    const int pieces = static_cast<int>(ceiling(rows, height)) * across;
    for (int piece = warp * parts + part; piece < pieces; piece += warps * parts) {
      const int row = piece / across * height;
      const int from = piece % across * Now::columns;
      auto y = add_up(row, from);
      settle(y, tile * tile_rows + row, from);
#pragma unroll
      for (int i = 0; i < Now::width; i += 2) {
        const float2 bias = memory.columns.of_pair[(from + 4 * i) / 2 + lane % 4][Which<Chain>::bias];
#pragma unroll
        for (int at = 0; at < 2; ++at) {
          y.at[at][i] += bias.x;
          y.at[at][i + 1] += bias.y;
        }
      }
      const auto value = finish<Chain, float, Now>(problem, memory.columns, y, from, lane);
      write_floats(problem.tail, value, tile * tile_rows + row, column + from, lane);
    }
  }
};

template <class Chain, int tile_rows, int group_width>
__global__ void __launch_bounds__(block_threads, 1) few_rows_kernel(const __grid_constant__ FewRowsProblem problem) {
  using Phases = FewRows<Chain, tile_rows, group_width>;
  extern __shared__ __align__(1024) unsigned char shared[];
  Phases phases{*reinterpret_cast<typename Phases::Memory*>(shared), problem};
  phases.set_up();
  // The ways of the two kinds of warps meet nowhere in the program, or the compiler would find few registers for both.
  if (phases.warp < Phases::warps) {
    take_registers<consume_registers>();
    phases.consume();
    cuda::wait_for_kernel_before();
    meet_cluster();
    phases.gather_seen();
    phases.meet_others();
    phases.finish_strip();
    meet_cluster();  // nobody leaves while another reads his sums
  } else {
    give_registers_back<bring_registers>();
    if (phases.warp == Phases::warps) {
      if (phases.lane == 0) phases.fetch_steps();
      __syncwarp();
      cuda::wait_for_kernel_before();
      bring_columns<Chain, float>(problem, phases.column, phases.lane, phases.memory.columns);
    }
    meet_cluster();
    meet_cluster();
  }
}

}  // namespace tailor::hopper
