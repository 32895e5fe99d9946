// The kernels of one chain for float32 of few rows: whether they take a call, and their launch.
#pragma once
#include "few_rows.cuh"
#include "strip_chain.cuh"

namespace tailor::hopper {

template <class Chain>
const char* refuses_few_rows(const Linear& linear, const Tail& tail) {
  if (const char* why = refuses_split(linear, tail)) return why;
  if (linear.x_transposed || linear.weight_transposed) return "a matrix is transposed";
  return refuses_few_rows(shape_of<Chain>(linear, tail), weight_of(linear, tail), wanted());
}

inline FloatMatrix float_matrix(const void* from, std::int64_t rows, std::int64_t stride) {
  FloatMatrix matrix{static_cast<const float*>(from), rows, stride};
  matrix.aligned = matrix.is_aligned();
  return matrix;
}

inline Thirds thirds_of(const Linear& linear, const Tail& tail, const StripsPlan& plan) {
  return {float_matrix(linear.x, tail.rows, linear.x_stride), static_cast<int>(linear.inner), plan.tile_rows};
}

template <class Chain>
std::int64_t workspace_of_few_rows(const Linear& linear, const Tail& tail) {
  Thirds thirds = thirds_of(linear, tail, plan_few_rows(shape_of<Chain>(linear, tail)));
  return place_thirds(thirds, nullptr);
}

template <class Chain, int group_width>
const char* launch_few_rows(const Linear& linear, const Tail& tail, cudaStream_t stream) {
  const StripsPlan plan = plan_few_rows(shape_of<Chain>(linear, tail));
  FewRowsProblem problem;
  problem.weight = float_matrix(linear.weight, tail.columns, linear.weight_stride);
  problem.x = thirds_of(linear, tail, plan);
  set_strips<Chain>(problem, linear, tail, plan, problem.x.steps());
  place_thirds(problem.x, linear.workspace);
  if (!describe(problem.w, weight_of(linear, tail), CU_TENSOR_MAP_DATA_TYPE_FLOAT32, strip_columns, strip_box))
    return not_described;
  if (const char* error = make_thirds(problem.x, stream)) return error;
  return by_kernel(RowsOfThirds(), plan.tile_rows, [&]<class Rows>() {
    return launch_strips<few_rows_kernel<Chain, Rows, group_width>, FewRowsMemory<Chain, Rows>>(problem, plan.parts,
                                                                                                stream);
  });
}

template <class Chain>
const char* forward_few_rows(const Linear& linear, const Tail& tail, void* stream) {
  return by_group_width<Chain>(tail, [&]<int width>() {
    return launch_few_rows<Chain, width>(linear, tail, static_cast<cudaStream_t>(stream));
  });
}

template <class Chain>
WholeRegistration register_few_rows() {
  static const WholeKernels kernels{.path = "bf16x6",
                                    .refuses = refuses_few_rows<Chain>,
                                    .workspace = workspace_of_few_rows<Chain>,
                                    .forward = forward_few_rows<Chain>};
  return {Chain::name, Device::cuda, kernels};
}

}  // namespace tailor::hopper
