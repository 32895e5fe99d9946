// float32 by three products of halves: low · high, high · low, high · high. What the two lower halves give together is below
// float32's last bit. A step's three products share an accumulator that starts at zero, and are then added to float32
// registers: the tensor cores cut sums off where float32 rounds them, and in a long sum that would show.
#pragma once
#include "doubt.cuh"
#include "problem.h"

namespace tailor::hopper {

__device__ __forceinline__ RowFacts facts_of(const SplitMatrix& matrix, std::int64_t row) {
  return row < matrix.rows ? matrix.facts[row] : RowFacts{1, -INFINITY, 0, whole_share, whole_share};
}

// A warp brings what is known of some columns, the worst of which in each respect it finds out.
__device__ __forceinline__ void bring_facts(const SplitMatrix& weight, int first, int count, int lane, RowFacts* to,
                                            RowFacts& to_worst) {
  float doubt = -INFINITY;
  float short_of_digits = 0;
  unsigned strong = whole_share;
  unsigned heavy = whole_share;
  for (int i = lane; i < count; i += 32) {
    const RowFacts facts = to[i] = facts_of(weight, first + i);
    doubt = fmaxf(doubt, facts.doubt);
    short_of_digits = fmaxf(short_of_digits, facts.short_of_digits);
    strong = min(strong, static_cast<unsigned>(facts.strong));
    heavy = min(heavy, static_cast<unsigned>(facts.heavy));
  }
  for (int other = 16; other > 0; other /= 2) {
    doubt = fmaxf(doubt, __shfl_xor_sync(~0u, doubt, other));
    short_of_digits = fmaxf(short_of_digits, __shfl_xor_sync(~0u, short_of_digits, other));
  }
  strong = __reduce_min_sync(~0u, strong);
  heavy = __reduce_min_sync(~0u, heavy);
  if (lane == 0)
    to_worst = {1, doubt, short_of_digits, static_cast<std::uint16_t>(strong), static_cast<std::uint16_t>(heavy)};
}
template <int width>
__device__ __forceinline__ void bring_facts(const TileProblem& problem, int first, int lane,
                                            ColumnFacts<2, width>& to) {
  bring_facts(problem.halves.weight, first, width, lane, to.of, to.worst);
}
template <int width>
__device__ __forceinline__ void bring_facts(const TileProblem&, int, int, ColumnFacts<1, width>&) {}

// Both halves of a block of a step.
struct BlockOfHalves {
  std::uint64_t high, low;  // as the tensor cores are told where they are
  __device__ __forceinline__ BlockOfHalves(const void* of_high, const void* of_low)
      : high(describe_block(address_of(of_high))), low(describe_block(address_of(of_low))) {}
};

// A step of the sums of 64 rows by some columns. Waits for the result: meanwhile the other warpgroup has the tensor cores.
template <int columns, bool a_lies = false>
__device__ __forceinline__ void add_step_of_halves(float* sums, const BlockOfHalves& a, const BlockOfHalves& b) {
  constexpr int instructions = row_bytes / instruction_bytes;
  constexpr std::uint64_t next_of_a = a_lies ? next_lines : next_instruction;
  float block[columns / 2];
  // The small ones first: each addition to a large sum is cut off.
  begin_products();
#pragma unroll
  for (int i = 0; i < instructions; ++i) {
    multiply<columns, a_lies>(block, a.low + next_of_a * i, b.high + next_instruction * i, i > 0, __half());
    multiply<columns, a_lies>(block, a.high + next_of_a * i, b.low + next_instruction * i, true, __half());
  }
#pragma unroll
  for (int i = 0; i < instructions; ++i)
    multiply<columns, a_lies>(block, a.high + next_of_a * i, b.high + next_instruction * i, true, __half());
  close_group_of_products();
  wait_for_products<0>();
#pragma unroll
  for (int i = 0; i < columns / 2; ++i) sums[i] += block[i];
}

// A warpgroup's rows by the first `columns` of a step, as many at a time as fit into registers beside the sums. Where x lies transposed, a
// warpgroup's 64 rows of it are the lines of a box of their own, which takes as many bytes.
template <bool x_lies, int columns, int width>
__device__ __forceinline__ void add_step(Accumulator<width>& sums, const Stage<2, tile_height, width>& from,
                                         int group) {
  constexpr int at_a_time = 128;
  const int row = group * warpgroup_rows;
#pragma unroll
  for (int column = 0; column < columns; column += at_a_time)
    add_step_of_halves<at_a_time, x_lies>(&sums[column / 2], {from.x[0][row], from.x[1][row]},
                                          {from.w[0][column], from.w[1][column]});
}

// The same of a tile of 128 columns, which has room for what the lower halves give, apart. Those of the higher halves are done where all groups
// but one are; the others need not be waited for, but the compiler does so before the next step.
template <bool x_lies, int width>
__device__ __forceinline__ void begin_step(Accumulator<width>& block, Accumulator<width>& lower,
                                           const Stage<2, tile_height, width>& from, int group) {
  constexpr int instructions = row_bytes / instruction_bytes;
  constexpr std::uint64_t next_of_x = x_lies ? next_lines : next_instruction;
  const int row = group * warpgroup_rows;
  const BlockOfHalves x(from.x[0][row], from.x[1][row]);
  const BlockOfHalves w(from.w[0][0], from.w[1][0]);
  begin_products();
#pragma unroll
  for (int i = 0; i < instructions; ++i)
    multiply<width, x_lies>(block, x.high + next_of_x * i, w.high + next_instruction * i, i > 0, __half());
  close_group_of_products();
#pragma unroll
  for (int i = 0; i < instructions; ++i) {
    multiply<width, x_lies>(lower, x.low + next_of_x * i, w.high + next_instruction * i, true, __half());
    multiply<width, x_lies>(lower, x.high + next_of_x * i, w.low + next_instruction * i, true, __half());
  }
  close_group_of_products();
}

// From sums of scaled rows to the linear's results without bias: exact, and computed again where that is not sure. None lie at column
// `end` or beyond.
template <int results_of_thread>
__device__ __forceinline__ void unscale(float (&sums)[results_of_thread], const TileProblem& problem,
                                        const RowFacts (&of_rows)[2],
                                        const ColumnFacts<2, 2 * results_of_thread>& facts, StepAgain& again, int row,
                                        int column, std::int64_t end, int lane) {
  const Doubt<lower_is_apart<2 * results_of_thread>> doubt{
      problem.halves, problem.tail.rows, min(problem.tail.columns, end), row, column, lane};
  const bool any = doubt.mark(sums, of_rows, facts);
#pragma unroll
  for (int i = 0; i < results_of_thread; ++i) {
    // In this order: both factors together may leave float's range.
    sums[i] = sums[i] * of_rows[row_of(i)].unscale * facts.of[lane % 4 * 2 + column_of(i)].unscale;
  }
  if (any) doubt.settle(sums, again);
}

}  // namespace tailor::hopper
