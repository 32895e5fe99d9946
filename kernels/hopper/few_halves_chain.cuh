// The launch of a chain's kernels for float32 of few rows by a weight whose halves are there.
#pragma once
#include "call.cuh"
#include "few_halves.cuh"
#include "halves_plan.h"

namespace tailor::hopper {

// The halves of a matrix, as the copy engine reads them.
inline Matrix matrix_of(const Halves& halves, const SplitMatrix& split) {
  const std::int64_t columns = 2 * static_cast<std::int64_t>(halves.padded);
  return {split.halves, split.rows, columns, columns, 2};
}

template <class Chain, int tile_rows, int group_width>
const char* launch_strips_of_halves(const Linear& linear, const Tail& tail, const Halves& halves,
                                    const StripsPlan& plan, cudaStream_t stream) {
  using Memory = FewHalvesMemory<Chain, tile_rows>;
  constexpr auto kernel = few_halves_kernel<Chain, tile_rows, group_width>;
  static_assert(sizeof(Memory) <= shared_limit);
  FewHalvesProblem<tile_rows> problem;
  problem.bias = linear.bias;
  problem.inner = halves.inner;
  problem.tail = tail;
  problem.weight_in_passing = reads_weight_in_passing(shape_of<Chain>(linear, tail), true);
  problem.halves = halves;
  const auto type = TwoHalves::of_operands;
  if (!describe(problem.x, matrix_of(halves, halves.x), type, tile_rows, halves_step) ||
      !describe(problem.w, matrix_of(halves, halves.weight), type, strip_columns, halves_step))
    return not_described;
  if (const char* error = allow_shared_memory<kernel>(sizeof(Memory))) return error;
  const std::int64_t blocks = ceiling(tail.columns, strip_columns) * ceiling(tail.rows, tile_rows) * plan.parts;
  cuda::launch_with<kernel>({cuda::grid_of(blocks, 1), block_threads, sizeof(Memory), plan.parts}, stream, problem);
  return cuda::launch_error();
}

template <class Chain, int group_width>
const char* launch_few_halves(const Linear& linear, const Tail& tail, const Halves& halves, cudaStream_t stream) {
  const StripsPlan plan = plan_few_halves(shape_of<Chain>(linear, tail));
  switch (plan.tile_rows) {
    case 32:
      return launch_strips_of_halves<Chain, 32, group_width>(linear, tail, halves, plan, stream);
    case 64:
      return launch_strips_of_halves<Chain, 64, group_width>(linear, tail, halves, plan, stream);
    case 128:
      return launch_strips_of_halves<Chain, 128, group_width>(linear, tail, halves, plan, stream);
    default:
      return launch_strips_of_halves<Chain, 256, group_width>(linear, tail, halves, plan, stream);
  }
}

}  // namespace tailor::hopper
