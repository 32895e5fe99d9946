// A linear of few rows and its chain's tail in one kernel, of float32, whose weight's halves are there already or soon made. To read
// them is what takes time: a strip (strip.cuh), of which both operands are halves in shared memory.
#pragma once
#include "halves_plan.h"
#include "halves_product.cuh"
#include "strip.cuh"

namespace tailor::hopper {

struct FewHalvesProblem : StripProblem {
  CUtensorMap x, w;  // the copy engine's descriptions of the halves
  Halves halves;
};

template <int tile_rows>
struct alignas(1024) StepOfHalves {
  unsigned char w[2][strip_columns][row_bytes];
  unsigned char x[2][tile_rows][row_bytes];
};

// What is known of the strip's columns, of the worst of each 32 in each respect, and of the tile's rows.
struct FactsOfStrip {
  RowFacts of[strip_columns];
  RowFacts worst[strip_columns / 32];
  RowFacts of_rows[RowsOfHalves::most];
};

template <class Chain, class Rows>
using FewHalvesMemory = StripMemory<StepOfHalves, Rows, FactsOfStrip, Which<Chain>::count>;

template <class Chain, class Rows, int group_width>
struct FewHalves : Strip<Chain, float, FewHalvesProblem, FewHalvesMemory<Chain, Rows>, group_width> {
  using Base = Strip<Chain, float, FewHalvesProblem, FewHalvesMemory<Chain, Rows>, group_width>;
  using Base::Base, Base::barrier, Base::column, Base::first, Base::first_row, Base::lane, Base::memory, Base::problem,
      Base::steps, Base::warp;
  using typename Base::Memory;
  using typename Base::Now;

  // --- the last warpgroup brings ---

  template <int tile_rows>
  __device__ __forceinline__ void fetch_steps() {
    if (!problem.halves.weight.is_made) cuda::wait_for_kernel_before();
    const std::uint64_t policy = this->keep_weight();
    const auto fetch = [&](const CUtensorMap& map, int stage, int step, auto& to, int row, auto... how) {
#pragma unroll
      for (int piece = 0; piece < 2; ++piece)
        fetch_box(map, address_of(to[piece]), barrier(memory.full[stage]), (2 * (first + step) + piece) * halves_step,
                  row, how...);
    };
    const auto fetch_weight = [&](int stage, int step) {
      arrive_and_expect(barrier(memory.full[stage]), sizeof(typename Memory::template Step<tile_rows>));
      fetch(problem.w, stage, step, memory.template step<tile_rows>(stage).w, column, policy);
    };
    const auto fetch_x = [&](int stage, int step) {
      fetch(problem.x, stage, step, memory.template step<tile_rows>(stage).x, first_row);
    };
    this->template fetch_all<Memory::template stages<tile_rows>>(fetch_weight, fetch_x);
  }

  // --- the others multiply ---

  template <int tile_rows>
  __device__ __forceinline__ void consume() {
    constexpr int at_a_time = tile_rows < 128 ? tile_rows : 128;  // of x's rows, as registers allow
    typename Base::template Sums<tile_rows> sums = {};
    Ring<Memory::template stages<tile_rows>> ring;
    const int row = warp / warps_of_group * warpgroup_rows;
#pragma unroll 1
    for (int i = 0; i < steps; ++i, ring.advance()) {
      wait_before_products(barrier(memory.full[ring.at]), ring.phase);
      const auto& step = memory.template step<tile_rows>(ring.at);
#pragma unroll
      for (int from = 0; from < tile_rows; from += at_a_time)
        add_step_of_halves<at_a_time>(&sums[from / 2], {step.w[0][row], step.w[1][row]},
                                      {step.x[0][from], step.x[1][from]});
      if (lane == 0) arrive(barrier(memory.empty[ring.at]));
    }
    this->meet_others();  // the ring is free
    this->leave_sums(sums);
  }

  // --- meanwhile ---

  __device__ __forceinline__ void learn(int which, int of) {  // warp of so many
    for (int i = which; i < strip_columns / 32; i += of)
      bring_facts(problem.halves.weight, column + i * 32, 32, lane, &memory.facts.of[i * 32], memory.facts.worst[i]);
    for (int at = which * 32 + lane; at < problem.tile_rows; at += of * 32)
      memory.facts.of_rows[at] = facts_of(problem.halves.x, first_row + at);
  }

  // --- and finish ---

  __device__ __forceinline__ void exchange() const {}

  // Whether all results of a thread's row stand, by the least of them and the worst that is known of each 32 columns.
  __device__ __forceinline__ bool all_sure(const Doubt<>& doubt, const float (&of)[Now::width], const RowFacts& of_row,
                                           int from) const {
    bool sure = true;
#pragma unroll
    for (int i = 0; i < Now::width; i += 8) {
      float least = INFINITY;
#pragma unroll
      for (int j = i; j < i + 8; ++j) least = fminf(least, fabsf(of[j]));
      sure &= doubt.is_sure(least, of_row, memory.facts.worst[(from + 4 * i) / 32]);
    }
    return sure;
  }
  // A bit for each result that does not stand.
  __device__ __forceinline__ std::uint32_t doubted(const Doubt<>& doubt, const typename Now::Value& y, int row,
                                                   int from) const {
    std::uint32_t bits = 0;
#pragma unroll
    for (int at = 0; at < 2; ++at) {
      const int of_result = this->row_of(row, at);
#pragma unroll
      for (int i = 0; i < Now::width; ++i) {
        const int of_strip = this->column_of(from, i);
        const bool is_there = first_row + of_result < problem.tail.rows && column + of_strip < problem.tail.columns;
        if (is_there && !doubt.is_sure(fabsf(y.at[at][i]), memory.facts.of_rows[of_result], memory.facts.of[of_strip]))
          bits |= 1u << (at * Now::width + i);
      }
    }
    return bits;
  }

  // From sums of scaled rows to the linear's results, computed again where that is not sure.
  __device__ __forceinline__ void settle(typename Now::Value& y, int row, int from) const {
    const Doubt<> doubt{problem.halves, problem.tail.rows, problem.tail.columns, first_row + row, column + from, lane};
    const RowFacts of_rows[] = {memory.facts.of_rows[this->row_of(row, 0)], memory.facts.of_rows[this->row_of(row, 1)]};
    const bool sure = all_sure(doubt, y.at[0], of_rows[0], from) && all_sure(doubt, y.at[1], of_rows[1], from);
    const std::uint32_t again = __all_sync(~0u, sure) ? 0 : doubted(doubt, y, row, from);
#pragma unroll
    for (int i = 0; i < Now::width; ++i) {
      const float of_column = memory.facts.of[this->column_of(from, i)].unscale;
#pragma unroll
      for (int at = 0; at < 2; ++at)
        y.at[at][i] = y.at[at][i] * of_rows[at].unscale * of_column;  // both factors together may leave float's range
    }
    this->compute_again(y, again, problem.halves.x, problem.halves.weight, row, from);
  }
};

template <class Chain, class Rows, int group_width>
__global__ void __launch_bounds__(block_threads, 1)
    few_halves_kernel(const __grid_constant__ FewHalvesProblem problem) {
  compute_strip<Chain, FewHalves<Chain, Rows, group_width>>(problem);
}

}  // namespace tailor::hopper
