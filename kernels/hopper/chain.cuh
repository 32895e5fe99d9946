// The kernels of one chain: which one takes a call, and its launch. A generated file for each chain says
//
//   static const tailor::WholeRegistration registration = tailor::hopper::register_chain<tailor::chains::…>();
#pragma once
#include "../cuda/launch.cuh"
#include "../whole.h"
#include "kernel.cuh"
#include "maps.h"
#include "plan.h"

namespace tailor::hopper {

inline int bytes_of(Element element) { return element == Element::float32 ? 4 : 2; }

// `out` is still to come where a call is only looked at.
struct Matrices {
  const Matrix x, weight, out;
  Matrices(const Linear& linear, const Tail& tail)
      : x{linear.x, tail.rows, linear.inner, linear.x_stride, bytes_of(tail.element)},
        weight{linear.weight, tail.columns, linear.inner, linear.weight_stride, bytes_of(tail.element)},
        out{tail.out, tail.rows, tail.columns, tail.columns, bytes_of(tail.element)} {}
};

template <class Chain>
Shape shape_of(const Linear& linear, const Tail& tail) {
  Shape shape;
  shape.rows = tail.rows;
  shape.columns = tail.columns;
  shape.inner = linear.inner;
  shape.element_bytes = bytes_of(tail.element);
  if (has_group_norm<Chain>) shape.group_width = tail.columns / tail.norm.groups;
  shape.processors = cuda::processors();
  return shape;
}

template <class Chain>
const char* refuses(const Linear& linear, const Tail& tail) {
  if (!is_hopper()) return "the GPU is not of compute capability 9.0";
  if (tail.element == Element::float64) return "there is no such kernel for float64";
  if (tail.element == Element::float32 && !linear.tensor_float32) return "float32 must not be rounded to TF32";
  if (tail.norm.batch_statistics) return "batch statistics are gathered from the linear's result";
  const Matrices matrices(linear, tail);
  for (const Matrix& matrix : {matrices.x, matrices.weight, matrices.out})
    if (const char* why = refuses_matrix(matrix)) return why;
  return refuses(shape_of<Chain>(linear, tail), wanted());
}

template <class Chain, class Precision, int group_width>
const char* launch_one(const Linear& linear, const Tail& tail, cudaStream_t stream) {
  using Memory = typename Kernel<Chain, Precision, group_width>::Memory;
  constexpr auto kernel = chain_kernel<Chain, Precision, group_width>;
  if (const char* error = allow_shared_memory<kernel>(sizeof(Memory))) return error;

  using Element = typename Precision::Element;
  Problem problem;
  problem.bias = linear.bias;
  problem.inner = static_cast<int>(linear.inner);
  problem.tail = tail;
  problem.row_tiles = static_cast<int>(ceiling(tail.rows, tile_rows * cluster_blocks));
  problem.column_tiles = static_cast<int>(ceiling(tail.columns, tile_columns));
  const Matrices matrices(linear, tail);
  if (!describe(problem.x, matrices.x, Precision::of_operands, tile_rows, box_columns<Element>) ||
      !describe(problem.w, matrices.weight, Precision::of_operands, tile_columns / cluster_blocks,
                box_columns<Element>) ||
      !describe(problem.out, matrices.out, Precision::of_result, block_rows, box_columns<Element>))
    return "the driver could not describe a matrix to the copy engine";

  const std::int64_t tiles = static_cast<std::int64_t>(problem.row_tiles) * problem.column_tiles * cluster_blocks;
  const std::int64_t processors = cuda::processors() / cluster_blocks * cluster_blocks;
  cuda::launch_with<kernel>(cuda::grid_of(tiles < processors ? tiles : processors, 1), block_threads, sizeof(Memory),
                            stream, problem);
  return cuda::launch_error();
}

template <class Chain, class Precision>
const char* launch(const Linear& linear, const Tail& tail, cudaStream_t stream) {
  if constexpr (has_group_norm<Chain>) {
    switch (tail.columns / tail.norm.groups) {
      case 16:
        return launch_one<Chain, Precision, 16>(linear, tail, stream);
      case 32:
        return launch_one<Chain, Precision, 32>(linear, tail, stream);
      default:
        return launch_one<Chain, Precision, 64>(linear, tail, stream);
    }
  } else {
    return launch_one<Chain, Precision, 0>(linear, tail, stream);
  }
}

template <class Chain>
const char* forward(const Linear& linear, const Tail& tail, void* stream) {
  auto* const to = static_cast<cudaStream_t>(stream);
  if (tail.element == Element::bfloat16) return launch<Chain, BFloat16>(linear, tail, to);
  if (tail.element == Element::float16) return launch<Chain, Float16>(linear, tail, to);
  return launch<Chain, TensorFloat32>(linear, tail, to);
}

template <class Chain>
WholeRegistration register_chain() {
  static const WholeKernels kernels{"hopper", refuses<Chain>, forward<Chain>};
  return {Chain::name, Device::cuda, kernels};
}

}  // namespace tailor::hopper
