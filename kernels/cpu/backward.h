// One chain's backward on the CPU, for one set of instructions. Everything is computed anew from y, forwards and then
// backwards, in one pass over the rows; a batch norm with batch statistics takes two, since the gradient of y needs sums
// over all of them.
#pragma once
#include "backward_groups.h"
#include "backward_rows.h"

namespace tailor::cpu::TAILOR_ISA {

// `tail.out` is where the gradient of y goes.
template <Phase phase, class Chain, class T>
void run_phase(const Tail& tail, const TailGradient& gradient, const SumMemory<Chain, T>& memory,
               const Parallel& parallel) {
  std::int64_t chunk = 0;
  in_wide_rows<T>(tail, [&](const Tail& rows, int times) {
    TailGradient of_rows = gradient;
    of_rows.of_out = raw<T>(gradient.of_out) + (raw<T>(rows.y) - raw<T>(tail.y));
    if constexpr (has_group_norm<Chain>)
      run_groups_backward<Chain, T>(rows, of_rows, memory, parallel, times, chunk);
    else
      run_rows_backward<Chain, T, phase>(rows, of_rows, memory, parallel, times, chunk, tail.rows);
    chunk += memory.chunks_of(rows.rows).count;
  });
  add_up<Chain, T, phase>(tail, gradient, memory, parallel);
}

template <class Chain, class T>
void run_backward(const Tail& given, const TailGradient& gradient, const Parallel& parallel) {
  Tail tail = given;
  tail.out = gradient.of_y;
  const SumMemory<Chain, T> memory(tail, gradient.workspace);
  if constexpr (has_batch_norm<Chain>) {
    if (tail.norm.batch_statistics) {
      run_phase<Phase::norm_sums>(tail, gradient, memory, parallel);
      return run_phase<Phase::before_norm>(tail, gradient, memory, parallel);
    }
  }
  run_phase<Phase::whole>(tail, gradient, memory, parallel);
}

template <class Chain>
const char* backward(const Tail& tail, const TailGradient& gradient, void* stream) {
  const Parallel& parallel = *static_cast<const Parallel*>(stream);
  with_element(tail.element, [&]<class T>(Of<T>) { run_backward<Chain, T>(tail, gradient, parallel); });
  return nullptr;
}

template <class Chain>
std::int64_t backward_workspace(const Tail& tail) {
  std::int64_t bytes = 0;
  with_element(tail.element, [&]<class T>(Of<T>) { bytes = SumMemory<Chain, T>(tail, nullptr).bytes(); });
  return bytes;
}

}  // namespace tailor::cpu::TAILOR_ISA
