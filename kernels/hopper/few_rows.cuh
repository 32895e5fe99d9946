// A linear of few rows and its chain's tail in one kernel, of float32. What takes time here is to read the weight, which is done
// once, in float32, and nothing is made of it that outlives the call.
//
// A strip (strip.cuh), of which a thread reads its own numbers of 64 of the weight's rows, splits them into thirds in registers, and
// multiplies.
#pragma once
#include "few_rows_plan.h"
#include "strip.cuh"
#include "thirds.h"
#include "thirds_product.cuh"
#include "thirds_split.cuh"

namespace tailor::hopper {

struct FewRowsProblem : StripProblem {
  CUtensorMap w;  // the copy engine's description of the weight
  FloatMatrix weight;
  Thirds x;
};

constexpr int strip_box = box_columns<float>;  // numbers of K in 128 bytes
static_assert(strip_box == thirds_step);

template <int tile_rows>
struct alignas(1024) StepOfThirds {
  static constexpr int bytes_of_x = 3 * 2 * thirds_step * tile_rows;
  unsigned char w[strip_columns][row_bytes];
  unsigned char x[bytes_of_x];
};

// Of each row of the weight: its largest number, and whether a third was lost.
struct SeenOfStrip {
  float2 here[strip_columns];  // in this block's part
  float2 all[strip_columns];
};

template <class Chain, class Rows>
using FewRowsMemory = StripMemory<StepOfThirds, Rows, SeenOfStrip, Which<Chain>::count>;

template <class Chain, class Rows, int group_width>
struct FewRows : Strip<Chain, float, FewRowsProblem, FewRowsMemory<Chain, Rows>, group_width> {
  using Base = Strip<Chain, float, FewRowsProblem, FewRowsMemory<Chain, Rows>, group_width>;
  using Base::Base, Base::barrier, Base::column, Base::first, Base::first_row, Base::lane, Base::memory, Base::parts,
      Base::problem, Base::steps, Base::tile, Base::warp;
  using typename Base::Memory;
  using typename Base::Now;
  // What thirds of the weight lose, over the share of a result that may be lost. x's largest number is 2^60.
  static constexpr float lost_of_weight = 0x1p-46f;

  // --- the last warpgroup brings ---

  // The weight does not depend on the kernel before, which makes the thirds of x.
  template <int tile_rows>
  __device__ __forceinline__ void fetch_steps() {
    constexpr int bytes_of_x = StepOfThirds<tile_rows>::bytes_of_x;
    const auto* const blocks = static_cast<const unsigned char*>(problem.x.blocks);
    const std::uint64_t policy = this->keep_weight();
    const auto fetch_weight = [&](int stage, int step) {
      const Address full = barrier(memory.full[stage]);
      auto& to = memory.template step<tile_rows>(stage).w;
      arrive_and_expect(full, sizeof(to) + bytes_of_x);
      fetch_box(problem.w, address_of(to), full, (first + step) * strip_box, column, policy);
    };
    const auto fetch_x = [&](int stage, int step) {
      const std::int64_t which = std::int64_t{tile} * problem.steps + first + step;
      fetch_bytes(blocks + which * bytes_of_x, address_of(memory.template step<tile_rows>(stage).x),
                  barrier(memory.full[stage]), bytes_of_x);
    };
    this->template fetch_all<Memory::template stages<tile_rows>>(fetch_weight, fetch_x);
  }

  // --- the others multiply ---

  // What a thread sees of its two rows of the weight.
  struct Seen {
    float most[2] = {};
    std::uint32_t rest[2] = {};
  };

  // Its numbers of a step: those of two instructions, as thirds.
  using Operand = std::uint32_t[2][3][4];
  __device__ __forceinline__ void read_weight(const unsigned char (&rows)[strip_columns][row_bytes], Operand& to,
                                              Seen& seen) const {
    const Address from = address_of(rows[warp * warp_rows + lane / 4]);
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
  template <int tile_rows>
  static __device__ __forceinline__ void multiply_step(ProductsOfThirds<tile_rows>& products, const Operand& w,
                                                       const StepOfThirds<tile_rows>& step) {
    begin_products();
    products.multiply_all(w, address_of(step.x));
    close_group_of_products();
  }

  // While the tensor cores work on one step, a thread prepares its part of the next.
  template <int tile_rows>
  __device__ __forceinline__ void consume() {
    typename Base::template Sums<tile_rows> sums = {};
    Seen seen;
    Ring<Memory::template stages<tile_rows>> ring;
    Operand w[2];
    const auto read = [&](Operand& to) {
      wait(barrier(memory.full[ring.at]), ring.phase);
      read_weight(memory.template step<tile_rows>(ring.at).w, to, seen);
    };
    const auto multiply_and_read = [&](const Operand& now, Operand& next, bool any_next) {
      const int stage = ring.at;
      ProductsOfThirds<tile_rows> products;
      multiply_step(products, now, memory.template step<tile_rows>(stage));
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
    this->meet_others();  // the ring is free
    this->leave_sums(sums);
    leave_seen(seen);
  }

  __device__ __forceinline__ void leave_seen(Seen& seen) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      for (int other = 1; other < 4; other *= 2) {
        seen.most[row] = fmaxf(seen.most[row], __shfl_xor_sync(~0u, seen.most[row], other));
        seen.rest[row] |= __shfl_xor_sync(~0u, seen.rest[row], other);
      }
      const int to = warp * warp_rows + 8 * row + lane / 4;
      if (lane % 4 == 0) memory.facts.here[to] = {seen.most[row], is_lost(seen.rest[row]) ? 1.0f : 0.0f};
    }
  }

  // --- and finish ---

  __device__ __forceinline__ void learn(int, int) const {}
  __device__ __forceinline__ void exchange() {
    const int at = static_cast<int>(threadIdx.x);
    if (at < strip_columns) {
      float2 all{0, 0};
      for (int block = 0; block < parts; ++block) {
        const float2 one = read_pair_of(block, address_of(&memory.facts.here[at]));
        all = {fmaxf(all.x, one.x), fmaxf(all.y, one.y)};
      }
      memory.facts.all[at] = all;
    }
    this->meet_others();
  }

  // From sums of scaled rows to the linear's results: those that are no numbers, or that what was lost may show in, computed again.
  __device__ __forceinline__ void settle(typename Now::Value& y, int row, int from) const {
    std::uint32_t doubted = 0;
#pragma unroll
    for (int at = 0; at < 2; ++at) {
      const int of_x = first_row + this->row_of(row, at);
      if (of_x >= problem.tail.rows) continue;
      const RowOfX facts = problem.x.facts[of_x];
#pragma unroll
      for (int i = 0; i < Now::width; ++i) {
        const float2 of_weight = memory.facts.all[this->column_of(from, i)];
        const bool is_zero = facts.is_zero || of_weight.x == 0;  // the result, if it is a number
        const float lost =
            facts.lost * fmaxf(1, of_weight.x) + of_weight.y * lost_of_weight * static_cast<float>(problem.inner);
        const float magnitude = fabsf(y.at[at][i]);
        const bool is_sure = magnitude >= (is_zero ? 0 : lost) && magnitude < INFINITY;
        const bool is_column = column + this->column_of(from, i) < problem.tail.columns;
        if (!is_sure && !facts.has_nan && is_column) doubted |= 1u << (at * Now::width + i);
        y.at[at][i] *= facts.unscale;
      }
    }
    this->compute_again(y, doubted, problem.x.x, problem.weight, row, from);
  }
};

template <class Chain, class Rows, int group_width>
__global__ void __launch_bounds__(block_threads, 1) few_rows_kernel(const __grid_constant__ FewRowsProblem problem) {
  compute_strip<Chain, FewRows<Chain, Rows, group_width>>(problem);
}

}  // namespace tailor::hopper
