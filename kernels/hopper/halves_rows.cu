// Makes halves of x and of the weight where both are stored by rows, in one launch: a row by one to eight warps. The row waits
// in registers while its largest number is looked for; what does not fit is read again, from the L2.
#include "../ceiling.h"
#include "../cuda/launch.cuh"
#include "row_of_block.cuh"

namespace tailor::hopper {
namespace {

// Blocks wait for their rows, and small ones not all at the same time.
constexpr int block_threads_of_split = 256;
constexpr int blocks_at_once = 4;

// `in_registers`: packets of a thread.
template <int threads, int in_registers, bool aligned>
__global__ void __launch_bounds__(block_threads_of_split, blocks_at_once)
    split_rows(const __grid_constant__ Halves halves) {
  cuda::wait_for_kernel_before();
  cuda::let_kernel_after_begin();
  constexpr int rows_of_block = block_threads_of_split / threads;
  __shared__ typename RowOfBlock<threads>::Memory memory[rows_of_block];
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const int place = static_cast<int>(threadIdx.x) / threads;
  const RowOfBlock<threads> together{memory[place], thread % 32, thread / 32};

  if (blockIdx.x == 0 && halves.rows_beside > 0)
    for (std::int64_t i = threadIdx.x; i < halves.progress_count(); i += block_threads_of_split) halves.progress[i] = 0;

  const std::int64_t rows_of_x = halves.rows_before();
  const std::int64_t all = rows_of_x + halves.weight.rows;
  // Whole blocks stay together: there are barriers on the way.
  std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * rows_of_block + place;
  const bool is_there = row < all;
  if (!is_there) row = all - 1;
  const bool is_weight = row >= rows_of_x;
  const SplitMatrix& matrix = is_weight ? halves.weight : halves.x;
  if (is_weight) row -= rows_of_x;
  const float* from = matrix.from + row * matrix.stride;

  Values values[in_registers];
  std::uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < in_registers; ++i) {
    values[i] = read<aligned>(from, (i * threads + thread) * packet, halves.inner);
    look_for_largest(values[i], largest);
  }
  for (int column = (in_registers * threads + thread) * packet; column < halves.inner; column += threads * packet)
    look_for_largest(read<aligned>(from, column, halves.inner), largest);
  largest = together.most(largest);

  const Scale scale(largest);
  auto* const halves_of_row = static_cast<__half*>(matrix.halves) + row * 2 * halves.padded;
  Found found;
#pragma unroll
  for (int i = 0; i < in_registers; ++i) {
    const int column = (i * threads + thread) * packet;
    if (column >= halves.padded || !is_there) continue;
    split(values[i], scale.up, halves.reach, halves_of_row + place_of_half(column), found);
  }
  for (int column = (in_registers * threads + thread) * packet; column < halves.padded && is_there;
       column += threads * packet)
    split(read<aligned>(from, column, halves.inner), scale.up, halves.reach, halves_of_row + place_of_half(column),
          found);
  const FoundByAll all_found = together.gather(found);
  if (thread != 0 || !is_there) return;
  matrix.facts[row] = facts_from(all_found, largest, scale, halves.inner);
}

template <int threads, int in_registers>
void launch(const Halves& halves, cudaStream_t stream) {
  const dim3 grid =
      cuda::grid_of(ceiling(halves.rows_before() + halves.weight.rows, block_threads_of_split / threads), 1);
  // One that has no rows here may be anything.
  if ((halves.x.aligned || halves.x.rows == 0) && (halves.weight.aligned || halves.weight.rows == 0))
    cuda::launch<split_rows<threads, in_registers, true>>(grid, block_threads_of_split, stream, halves);
  else
    cuda::launch<split_rows<threads, in_registers, false>>(grid, block_threads_of_split, stream, halves);
}

}  // namespace

const char* split_by_rows(const Halves& halves, cudaStream_t to) {
  constexpr int few = 4;  // packets of a thread
  constexpr int many = 8;
  const auto fits = [&](int threads) { return halves.inner <= threads * packet * few; };
  if (fits(32))
    launch<32, few>(halves, to);
  else if (fits(64))
    launch<64, few>(halves, to);
  else if (fits(128))
    launch<128, few>(halves, to);
  else if (fits(256))
    launch<256, few>(halves, to);
  else
    launch<256, many>(halves, to);
  return cuda::launch_error();
}

}  // namespace tailor::hopper
