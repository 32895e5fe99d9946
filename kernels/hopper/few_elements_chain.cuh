// The launch of a chain's kernels for 16-bit elements of few rows.
#pragma once
#include "call.cuh"
#include "elements_plan.h"
#include "few_elements.cuh"

namespace tailor::hopper {

template <class Chain, class Precision, int tile_rows, int group_width>
const char* launch_strips_of_elements(const Linear& linear, const Tail& tail, const StripsPlan& plan,
                                      cudaStream_t stream) {
  using Element = typename Precision::Element;
  using Memory = FewElementsMemory<Chain, tile_rows>;
  constexpr auto kernel = few_elements_kernel<Chain, Element, tile_rows, group_width>;
  static_assert(sizeof(Memory) <= shared_limit);
  FewElementsProblem<Element> problem;
  problem.bias = linear.bias;
  problem.inner = static_cast<int>(linear.inner);
  problem.tail = tail;
  problem.weight_in_passing = reads_weight_in_passing(shape_of<Chain>(linear, tail), true);
  problem.row_tiles = static_cast<int>(ceiling(tail.rows, tile_rows));
  if (!describe(problem.x, x_of(linear, tail), Precision::of_operands, tile_rows, box_columns<Element>) ||
      !describe(problem.w, weight_of(linear, tail), Precision::of_operands, strip_columns, box_columns<Element>))
    return not_described;
  if (const char* error = allow_shared_memory<kernel>(sizeof(Memory))) return error;
  const std::int64_t blocks = ceiling(tail.columns, strip_columns) * problem.row_tiles * plan.parts;
  cuda::launch_with<kernel>({cuda::grid_of(blocks, 1), block_threads, sizeof(Memory), plan.parts}, stream, problem);
  return cuda::launch_error();
}

template <class Chain, class Precision, int group_width>
const char* launch_few_elements(const Linear& linear, const Tail& tail, cudaStream_t stream) {
  const StripsPlan plan = plan_few_elements(shape_of<Chain>(linear, tail));
  const auto in_tiles_of = [&]<int tile_rows>() {
    return launch_strips_of_elements<Chain, Precision, tile_rows, group_width>(linear, tail, plan, stream);
  };
  switch (plan.tile_rows) {
    case 32:
      return in_tiles_of.template operator()<32>();
    case 64:
      return in_tiles_of.template operator()<64>();
    default:
      return in_tiles_of.template operator()<128>();
  }
}

}  // namespace tailor::hopper
