// The launch of a chain's kernels for float32 of few rows by a weight whose halves are there.
#pragma once
#include "few_halves.cuh"
#include "strip_chain.cuh"

namespace tailor::hopper {

// The halves of a matrix, as the copy engine reads them.
inline Matrix matrix_of(const Halves& halves, const SplitMatrix& split) {
  const std::int64_t columns = 2 * static_cast<std::int64_t>(halves.padded);
  return {split.halves, split.rows, columns, columns, 2};
}

template <class Chain, int group_width>
const char* launch_few_halves(const Linear& linear, const Tail& tail, const Halves& halves, cudaStream_t stream) {
  const StripsPlan plan = plan_few_halves(shape_of<Chain>(linear, tail));
  FewHalvesProblem problem;
  set_strips<Chain>(problem, linear, tail, plan, halves.padded / halves_step);
  problem.halves = halves;
  const auto type = TwoHalves::of_operands;
  if (!describe(problem.x, matrix_of(halves, halves.x), type, plan.tile_rows, halves_step) ||
      !describe(problem.w, matrix_of(halves, halves.weight), type, strip_columns, halves_step))
    return not_described;
  return by_kernel(RowsOfHalves(), plan.tile_rows, [&]<class Rows>() {
    return launch_strips<few_halves_kernel<Chain, Rows, group_width>, FewHalvesMemory<Chain, Rows>>(problem, plan.parts,
                                                                                                    stream);
  });
}

}  // namespace tailor::hopper
