// The launch of a chain's kernels for 16-bit elements of few rows.
#pragma once
#include "few_elements.cuh"
#include "strip_chain.cuh"

namespace tailor::hopper {

template <class Chain, class Precision, int group_width>
const char* launch_few_elements(const Linear& linear, const Tail& tail, cudaStream_t stream) {
  using Element = typename Precision::Element;
  constexpr int step = box_columns<Element>;
  const StripsPlan plan = plan_few_elements(shape_of<Chain>(linear, tail));
  FewElementsProblem problem;
  set_strips<Chain>(problem, linear, tail, plan, ceiling(linear.inner, step));
  if (!describe(problem.x, x_of(linear, tail), Precision::of_operands, plan.tile_rows, step) ||
      !describe(problem.w, weight_of(linear, tail), Precision::of_operands, strip_columns, step))
    return not_described;
  return launch_strips<few_elements_kernel<Chain, Element, group_width>, FewElementsMemory<Chain>>(problem, plan.parts,
                                                                                                   stream);
}

}  // namespace tailor::hopper
