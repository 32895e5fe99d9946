// The kernels of one chain: which one takes a call, and its launch. A generated file for each chain says
//
//   static const auto registrations = tailor::hopper::register_chain<tailor::chains::…>();
#pragma once
#include "batch_plan.h"
#include "call.cuh"
#include "few_elements_chain.cuh"
#include "few_halves_chain.cuh"
#include "few_rows_chain.cuh"
#include "kernel.cuh"
#include "linear.h"
#include "shared_halves.h"

namespace tailor::hopper {

// `out` is still to come where a call is only looked at.
struct Matrices {
  const Matrix x, weight, out;
  Matrices(const Linear& linear, const Tail& tail)
      : x{x_of(linear, tail)},
        weight{weight_of(linear, tail)},
        out{tail.out, tail.rows, tail.columns, tail.columns, bytes_of(tail.element)} {}
};

// Why its linear is none of the kernel's, or null.
template <class Chain>
const char* refuses_operands(const Linear& linear, const Tail& tail) {
  if (const char* why = refuses_call()) return why;
  if (linear.x_transposed || linear.weight_transposed) return "a matrix is transposed";
  if (tail.element == Element::float64) return "there is no such kernel for float64";
  if (tail.element == Element::float32 && !linear.tensor_float32) return "float32 must not be rounded to TF32";
  const Matrices matrices(linear, tail);
  for (const Matrix& matrix : {matrices.x, matrices.weight, matrices.out})
    if (const char* why = refuses_matrix(matrix)) return why;
  return nullptr;
}

template <class Chain>
const char* refuses_gathering(const Linear& linear, const Tail& tail) {
  if (const char* why = refuses_operands<Chain>(linear, tail)) return why;
  return refuses_to_gather(shape_of<Chain>(linear, tail), wanted());
}

template <class Chain>
const char* refuses_halves(const Linear& linear, const Tail& tail) {
  if (const char* why = refuses_split(linear, tail)) return why;
  return refuses_halves(shape_of<Chain>(linear, tail), wanted());
}

// A call with batch statistics, and how many clusters there can be of the kernel whose blocks agree on them.
template <class Chain, class Precision>
Shape agreeing_shape(const Linear& linear, const Tail& tail) {
  using Memory = typename Kernel<Chain, Precision, 0, Manner::agreeing, widest_tile>::Memory;
  constexpr auto kernel = chain_kernel<Chain, Precision, 0, Manner::agreeing, widest_tile>;
  Shape shape = shape_of<Chain>(linear, tail);
  if (allow_shared_memory<kernel>(sizeof(Memory)) == nullptr)
    shape.clusters = cuda::clusters_at_once<kernel>(block_threads, sizeof(Memory), cluster_blocks);
  return shape;
}

// of_shape(the call's shape) for its precision; for float32, which no such kernel takes, without clusters.
template <class Chain, class OfShape>
auto of_agreeing_shape(const Linear& linear, const Tail& tail, OfShape of_shape) {
  if constexpr (has_batch_norm<Chain>) {
    if (tail.element == Element::bfloat16) return of_shape(agreeing_shape<Chain, BFloat16>(linear, tail));
    if (tail.element == Element::float16) return of_shape(agreeing_shape<Chain, Float16>(linear, tail));
  }
  return of_shape(shape_of<Chain>(linear, tail));
}

template <class Chain>
const char* refuses(const Linear& linear, const Tail& tail) {
  if (const char* why = refuses_operands<Chain>(linear, tail)) return why;
  if (!has_batch_norm<Chain> || !tail.norm.batch_statistics) return refuses(shape_of<Chain>(linear, tail), wanted());
  return of_agreeing_shape<Chain>(linear, tail, [](const Shape& shape) { return refuses_to_agree(shape, wanted()); });
}

inline std::int64_t workspace_of_agreement(const Linear&, const Tail& tail) {
  return tail.norm.batch_statistics ? Agreement().place(nullptr, ceiling(tail.rows, tile_height), tail.columns) : 0;
}

// `narrow_last`: the last round's tiles are cut in two.
template <class Chain, class Precision, int group_width, Manner manner, int width>
const char* launch_tiles(TileProblem& problem, const Linear& linear, const Tail& tail, cudaStream_t stream,
                         bool narrow_last = false) {
  using Memory = typename Kernel<Chain, Precision, group_width, manner, width>::Memory;
  constexpr auto kernel = chain_kernel<Chain, Precision, group_width, manner, width>;
  if (const char* error = allow_shared_memory<kernel>(sizeof(Memory))) return error;
  problem.bias = linear.bias;
  problem.inner = static_cast<int>(linear.inner);
  problem.tail = tail;
  problem.result = linear.result;
  using Cluster = ClusterTile<manner == Manner::in_turns, width>;
  problem.row_tiles = static_cast<int>(ceiling(tail.rows, Cluster::rows));
  problem.weight_in_passing = reads_weight_in_passing(shape_of<Chain>(linear, tail), problem.row_tiles == 1);
  problem.column_tiles = static_cast<int>(ceiling(tail.columns, Cluster::columns));
  cuda::Blocks blocks{{}, block_threads, sizeof(Memory)};
  if constexpr (manner == Manner::agreeing) {
    const AgreementPlan plan = plan_agreement(agreeing_shape<Chain, Precision>(linear, tail));
    problem.agreement.place(linear.workspace, ceiling(tail.rows, tile_height), tail.columns);
    problem.agreement.column_tiles_at_once = static_cast<int>(plan.column_tiles);
    problem.agreement.share_bits = plan.share_bits;
    blocks.grid = cuda::grid_of(plan.row_tiles * cluster_blocks, plan.column_tiles);
    blocks.all_at_once = true;
  } else {
    const std::int64_t tiles = static_cast<std::int64_t>(problem.row_tiles) * problem.column_tiles;
    const std::int64_t at_once = cuda::processors() / cluster_blocks;
    constexpr bool narrows = Kernel<Chain, Precision, group_width, manner, width>::narrows;
    const std::int64_t wide = narrows && narrow_last ? tiles / at_once * at_once : tiles;
    problem.wide_tiles = static_cast<int>(wide);
    blocks.grid = cuda::grid_of(std::min(2 * tiles - wide, at_once) * cluster_blocks, 1);
  }
  cuda::launch_with<kernel>(blocks, stream, problem);
  return cuda::launch_error();
}

template <class Precision>
bool describe_operands(TileProblem& problem, const Matrix& x, const Matrix& weight, Manner manner, int width) {
  constexpr int box = box_columns<typename Precision::Operand>;
  const bool in_turns = manner == Manner::in_turns;
  const int rows = in_turns ? turn_rows / cluster_blocks : tile_height;
  const int columns = in_turns ? width : width / cluster_blocks;
  return describe(problem.x, x, Precision::of_operands, rows, box) &&
         describe(problem.w, weight, Precision::of_operands, columns, box);
}

// The same of halves of x that lie transposed: lines of 64 of its rows.
inline bool describe_lying(TileProblem& problem, const Matrix& x, const Matrix& weight, int width) {
  constexpr auto type = TwoHalvesLying::of_operands;
  return describe(problem.x, x, type, halves_step, warpgroup_rows) &&
         describe(problem.w, weight, type, width / cluster_blocks, halves_step);
}

template <class Chain, class Precision, int group_width, Manner manner, int width>
const char* launch_one(const Linear& linear, const Tail& tail, cudaStream_t stream, bool narrow_last = false) {
  TileProblem problem;
  const Matrices matrices(linear, tail);
  if (!describe_operands<Precision>(problem, matrices.x, matrices.weight, manner, width) ||
      !describe(problem.out, matrices.out, Precision::of_result, warp_rows, box_columns<typename Precision::Element>))
    return not_described;
  if (narrow_last && !describe(problem.narrow_w, matrices.weight, Precision::of_operands, width / 2 / cluster_blocks,
                               box_columns<typename Precision::Operand>))
    return not_described;
  return launch_tiles<Chain, Precision, group_width, manner, width>(problem, linear, tail, stream, narrow_last);
}

inline Halves halves_of(const Linear& linear, const Tail& tail) {
  Halves halves;
  halves.x = {{static_cast<const float*>(linear.x), tail.rows, linear.x_stride, linear.x_transposed}};
  halves.weight = {
      {static_cast<const float*>(linear.weight), tail.columns, linear.weight_stride, linear.weight_transposed}};
  halves.inner = static_cast<int>(linear.inner);
  return halves;
}

// Whether a backward has products of it, two of which may share what they read.
template <class Chain>
inline constexpr bool may_share = std::is_same_v<Chain, tailor::hopper::linear>;

// Of the matrix that is x of one product, and x transposed of another.
inline SharedHalves shared_of(const Linear& linear, const Tail& tail) {
  const bool lies = linear.x_transposed;
  const std::int64_t rows = lies ? linear.inner : tail.rows;
  const std::int64_t columns = lies ? tail.rows : linear.inner;
  SharedHalves shared{{static_cast<const float*>(linear.x), rows, linear.x_stride}, static_cast<int>(columns)};
  shared.lie_at(const_cast<void*>(linear.shared));
  return shared;
}

inline std::int64_t shared_bytes_of_halves(const Linear& linear, const Tail& tail, const Linear& transposed,
                                           const Tail& its_tail) {
  const bool is_lying = !linear.x_transposed && transposed.x_transposed && transposed.weight_transposed;
  SharedHalves shared = shared_of(linear, tail);
  if (!is_lying || transposed.x != linear.x || transposed.x_stride != linear.x_stride || !shared.matrix.is_aligned())
    return 0;
  const char* const why = refuses_to_share(shape_of<tailor::hopper::linear>(linear, tail),
                                           shape_of<tailor::hopper::linear>(transposed, its_tail), wanted());
  return why == nullptr ? shared.lie_at(nullptr) : 0;
}

inline const char* share_halves(const Linear& linear, const Tail& tail, void* to, void* stream) {
  SharedHalves shared = shared_of(linear, tail);
  shared.lie_at(to);
  return make_shared_halves(shared, stream);
}

// x's part of the workspace.
inline std::int64_t workspace_of_x(Halves& halves, const Linear& linear, const Tail& tail) {
  if (linear.shared == nullptr) return place_halves(halves, &Halves::x, linear.workspace);
  const SharedHalves shared = shared_of(linear, tail);
  place_halves(halves, &Halves::x, nullptr);
  halves.x.is_made = true;
  halves.x.halves = shared.halves;
  halves.x.facts = linear.x_transposed ? shared.of_columns : shared.of_rows;
  halves.lines = linear.x_transposed ? shared.of_rows : nullptr;
  return 0;
}

// Those halves, as the copy engine reads them.
inline Matrix lying_matrix_of(const SharedHalves& shared) {
  const std::int64_t columns = 2 * std::int64_t{shared.padded};
  return {shared.halves, shared.matrix.rows, columns, columns, 2};
}

inline std::int64_t workspace_of_halves(const Linear& linear, const Tail& tail) {
  Halves halves = halves_of(linear, tail);
  const std::int64_t of_x = workspace_of_x(halves, linear, tail);
  return linear.kept != nullptr ? of_x : of_x + place_halves(halves, &Halves::weight, nullptr);
}

inline std::int64_t kept_bytes_of_halves(const Linear& linear, const Tail& tail) {
  Halves halves = halves_of(linear, tail);
  return place_halves(halves, &Halves::weight, nullptr);
}

inline const char* keep_halves(const Linear& linear, const Tail& tail, void* to, void* stream) {
  Halves halves = halves_of(linear, tail);
  halves.x.is_made = true;  // it is none of this
  place_halves(halves, &Halves::weight, to);
  return make_halves(halves, stream);
}

// A captured graph would use what was kept at its capture for ever.
inline bool may_keep_halves(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status) == cudaSuccess &&
         status == cudaStreamCaptureStatusNone;
}

template <class Chain, int group_width>
const char* launch_halves(const Linear& linear, const Tail& tail, cudaStream_t stream) {
  TileProblem problem;
  Halves& halves = problem.halves = halves_of(linear, tail);
  const std::int64_t of_x = workspace_of_x(halves, linear, tail);
  halves.weight.is_made = linear.kept != nullptr;
  place_halves(halves, &Halves::weight,
               halves.weight.is_made ? const_cast<void*>(linear.kept) : static_cast<char*>(linear.workspace) + of_x);
  const Shape shape = shape_of<Chain>(linear, tail);
  const bool lies = halves.lines != nullptr;
  const bool in_strips =
      linear.shared == nullptr && takes_strips_of_halves(shape, wanted());  // strips have no far reach
  const TilePlan plan = plan_tiles_of_halves(shape, wanted());
  if (!in_strips && linear.of_gradients) halves.reach = far_reach;
  if (!in_strips && !halves.x.is_made && halves.x.aligned) halves.rows_beside = static_cast<int>(plan.rows_beside);
  if (const char* error = make_halves(halves, stream)) return error;
  if (in_strips) return launch_few_halves<Chain, group_width>(linear, tail, halves, stream);
  const auto in_tiles_of = [&]<int columns>() {
    constexpr Manner manner = Manner::side_by_side;
    if constexpr (may_share<Chain> && lower_is_apart<columns>) {  // as far reach wants it
      if (lies)
        return describe_lying(problem, lying_matrix_of(shared_of(linear, tail)), matrix_of(halves, halves.weight),
                              columns)
                   ? launch_tiles<Chain, TwoHalvesLying, group_width, manner, columns>(problem, linear, tail, stream)
                   : not_described;
    }
    if (!describe_operands<TwoHalves>(problem, matrix_of(halves, halves.x), matrix_of(halves, halves.weight), manner,
                                      columns))
      return not_described;
    if (plan.narrow_last && !describe(problem.narrow_w, matrix_of(halves, halves.weight), TwoHalves::of_operands,
                                      columns / 2 / cluster_blocks, halves_step))
      return not_described;
    return launch_tiles<Chain, TwoHalves, group_width, manner, columns>(problem, linear, tail, stream,
                                                                        plan.narrow_last);
  };
  return plan.columns == 128 ? in_tiles_of.template operator()<128>() : in_tiles_of.template operator()<widest_tile>();
}

// do_it.operator()<columns>() for a tile of so many.
template <class Do>
const char* by_tile_width(int columns, Do do_it) {
  if (columns == 128) return do_it.template operator()<128>();
  if (columns == 192) return do_it.template operator()<192>();
  return do_it.template operator()<widest_tile>();
}

template <class Chain, class Precision>
const char* launch(const Linear& linear, const Tail& tail, cudaStream_t stream) {
  return by_group_width<Chain>(tail, [&]<int group_width>() {
    constexpr bool has_16_bits = sizeof(typename Precision::Element) == 2;
    if constexpr (has_batch_norm<Chain> && has_16_bits)
      if (tail.norm.batch_statistics)
        return launch_one<Chain, Precision, group_width, Manner::agreeing, widest_tile>(linear, tail, stream);
    const Shape shape = shape_of<Chain>(linear, tail);
    if constexpr (has_16_bits)
      if (takes_strips_of_elements(shape, wanted()))
        return launch_few_elements<Chain, Precision, group_width>(linear, tail, stream);
    const TilePlan plan = plan_tiles(shape, wanted());
    if constexpr (group_width > 0)
      if (plan.in_turns)
        return launch_one<Chain, Precision, group_width, Manner::in_turns, turn_columns>(linear, tail, stream);
    return by_tile_width(plan.columns, [&]<int columns>() {
      return launch_one<Chain, Precision, group_width, Manner::side_by_side, columns>(linear, tail, stream,
                                                                                      plan.narrow_last);
    });
  });
}

template <class Launch>
const char* by_precision(const Tail& tail, Launch launch) {
  if (tail.element == Element::bfloat16) return launch.template operator()<BFloat16>();
  if (tail.element == Element::float16) return launch.template operator()<Float16>();
  return launch.template operator()<TensorFloat32>();
}

template <class Chain>
const char* forward(const Linear& linear, const Tail& tail, void* stream) {
  return by_precision(tail, [&]<class Precision>() {
    return launch<Chain, Precision>(linear, tail, static_cast<cudaStream_t>(stream));
  });
}

template <class Chain>
const char* gather(const Linear& linear, const Tail& tail, void* stream) {
  return by_precision(tail, [&]<class Precision>() {
    return launch_one<Chain, Precision, 0, Manner::gathering, widest_tile>(linear, tail,
                                                                           static_cast<cudaStream_t>(stream));
  });
}

template <class Chain>
const char* forward_halves(const Linear& linear, const Tail& tail, void* stream) {
  return by_group_width<Chain>(
      tail, [&]<int width>() { return launch_halves<Chain, width>(linear, tail, static_cast<cudaStream_t>(stream)); });
}

template <class Chain>
WholeRegistration register_halves() {
  static const WholeKernels kernels = [] {
    WholeKernels found{.path = "fp16x3",
                       .refuses = refuses_halves<Chain>,
                       .workspace = workspace_of_halves,
                       .kept_bytes = kept_bytes_of_halves,
                       .keep = keep_halves,
                       .may_keep = may_keep_halves,
                       .forward = forward_halves<Chain>};
    if constexpr (may_share<Chain>) {
      found.sharing_path = "fp16x3_shared";
      found.shared_bytes = shared_bytes_of_halves;
      found.share = share_halves;
    }
    return found;
  }();
  return {Chain::name, Device::cuda, kernels};
}

// All registrations of a chain, in the order in which they are asked.
struct Registrations {
  WholeRegistration whole, few_rows, halves;
};

template <class Chain>
Registrations register_chain() {
  static const WholeKernels whole = [] {
    WholeKernels kernels{.path = "hopper", .refuses = refuses<Chain>, .forward = forward<Chain>};
    if constexpr (has_batch_norm<Chain>) {
      kernels.workspace = workspace_of_agreement;
      kernels.gathering_path = "hopper_gather";
      kernels.gathered_rows = tile_height;
      kernels.refuses_gathering = refuses_gathering<Chain>;
      kernels.gather = gather<Chain>;
    }
    return kernels;
  }();
  return {{Chain::name, Device::cuda, whole}, register_few_rows<Chain>(), register_halves<Chain>()};
}

}  // namespace tailor::hopper
