// The launch of strips, whatever their operands are.
#pragma once
#include "call.cuh"
#include "strip.cuh"

namespace tailor::hopper {

// What a plan of so many steps says, and the call.
template <class Chain>
void set_strips(StripProblem& problem, const Linear& linear, const Tail& tail, const StripsPlan& plan,
                std::int64_t steps) {
  problem.bias = linear.bias;
  problem.inner = static_cast<int>(linear.inner);
  problem.tail = tail;
  problem.weight_in_passing = reads_weight_in_passing(shape_of<Chain>(linear, tail), true);
  problem.tile_rows = plan.tile_rows;
  problem.tiles = static_cast<int>(ceiling(tail.rows, plan.tile_rows));
  problem.steps = static_cast<int>(steps);
}

template <auto kernel, class Memory, class Problem>
const char* launch_strips(const Problem& problem, int parts, cudaStream_t stream) {
  static_assert(sizeof(Memory) <= shared_limit);
  if (const char* error = allow_shared_memory<kernel>(sizeof(Memory))) return error;
  const std::int64_t blocks = ceiling(problem.tail.columns, strip_columns) * problem.tiles * parts;
  const std::size_t bytes = Memory::bytes(problem.tile_rows);
  cuda::launch_with<kernel>({cuda::grid_of(blocks, 1), block_threads, bytes, parts}, stream, problem);
  return cuda::launch_error();
}

// do_it.operator()<TileRows<…>>() for the kernel that has tiles of so many rows. The lowest have one of their own, where the program is long
// (float32's): they take so little time that it shows how much of it lies in between.
template <int lowest, int... others, class Do>
const char* by_kernel(TileRows<lowest, others...>, int rows, Do do_it) {
  if (rows == lowest) return do_it.template operator()<TileRows<lowest>>();
  return do_it.template operator()<TileRows<others...>>();
}

}  // namespace tailor::hopper
