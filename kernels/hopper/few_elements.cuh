// A linear of few rows and its chain's tail in one kernel, of 16-bit elements: a strip (strip.cuh) whose operands lie in shared memory as
// they are, so that one product does.
#pragma once
#include "elements_plan.h"
#include "precision.cuh"
#include "strip.cuh"

namespace tailor::hopper {

struct FewElementsProblem : StripProblem {
  CUtensorMap x, w;  // the copy engine's descriptions of the matrices
};

template <int tile_rows>
struct alignas(1024) StepOfElements {
  unsigned char w[strip_columns][row_bytes];
  unsigned char x[tile_rows][row_bytes];
};

struct NoFacts {};

template <class Chain>
using FewElementsMemory = StripMemory<StepOfElements, RowsOfElements, NoFacts, Which<Chain>::count>;

template <class Chain, class Element, int group_width>
struct FewElements : Strip<Chain, Element, FewElementsProblem, FewElementsMemory<Chain>, group_width> {
  using Base = Strip<Chain, Element, FewElementsProblem, FewElementsMemory<Chain>, group_width>;
  using Base::Base, Base::barrier, Base::column, Base::first, Base::first_row, Base::lane, Base::memory, Base::problem,
      Base::steps, Base::warp;
  using typename Base::Memory;
  using typename Base::Now;

  // --- the last warpgroup brings ---

  template <int tile_rows>
  __device__ __forceinline__ void fetch_steps() {
    cuda::wait_for_kernel_before();  // which may have written the weight too
    const std::uint64_t policy = this->keep_weight();
    const auto fetch_weight = [&](int stage, int step) {
      const Address full = barrier(memory.full[stage]);
      auto& to = memory.template step<tile_rows>(stage);
      arrive_and_expect(full, sizeof(to));
      fetch_box(problem.w, address_of(to.w), full, (first + step) * box_columns<Element>, column, policy);
    };
    const auto fetch_x = [&](int stage, int step) {
      fetch_box(problem.x, address_of(memory.template step<tile_rows>(stage).x), barrier(memory.full[stage]),
                (first + step) * box_columns<Element>, first_row);
    };
    this->template fetch_all<Memory::template stages<tile_rows>>(fetch_weight, fetch_x);
  }

  // --- the others multiply ---

  // One step is under way while the next is issued.
  template <int tile_rows>
  __device__ __forceinline__ void consume() {
    typename Base::template Sums<tile_rows> sums;
    Ring<Memory::template stages<tile_rows>> ring;
    const int row = warp / warps_of_group * warpgroup_rows;
    int before = -1;
    const auto release = [&] {
      if (before >= 0 && lane == 0) arrive(barrier(memory.empty[before]));
    };
#pragma unroll 1
    for (int i = 0; i < steps; ++i, ring.advance()) {
      wait_before_products(barrier(memory.full[ring.at]), ring.phase);
      const auto& from = memory.template step<tile_rows>(ring.at);
      const std::uint64_t w = describe_block(address_of(from.w[row]));
      const std::uint64_t x = describe_block(address_of(from.x));
      begin_products();
#pragma unroll
      for (int at = 0; at < row_bytes / instruction_bytes; ++at)
        multiply<tile_rows>(sums, w + next_instruction * at, x + next_instruction * at, i > 0 || at > 0, Element());
      close_group_of_products();
      wait_for_products<1>();
      release();
      before = ring.at;
    }
    wait_for_products<0>();
    this->meet_others();  // the ring is free
    this->leave_sums(sums);
  }

  // --- and finish ---

  static constexpr bool learns = false;
  __device__ __forceinline__ void exchange() const {}
  __device__ __forceinline__ void settle(typename Now::Value&, int, int) const {}
};

template <class Chain, class Element, int group_width>
__global__ void __launch_bounds__(block_threads, 1)
    few_elements_kernel(const __grid_constant__ FewElementsProblem problem) {
  compute_strip<Chain, FewElements<Chain, Element, group_width>>(problem);
}

}  // namespace tailor::hopper
