// One chain's tail on the CPU, for one set of instructions.
#pragma once
#include "batch.h"
#include "groups.h"

namespace tailor::cpu::TAILOR_ISA {

template <class Chain, class T>
void run(const Tail& whole, const Parallel& parallel) {
  const Compute<T>* means = nullptr;
  const double* inverse_deviations = nullptr;
  if constexpr (has_batch_norm<Chain>) {
    if (whole.norm.batch_statistics) {
      if (is_cut_into_strips(whole)) return run_strips<Chain, T>(whole, parallel);
      const BatchMemory memory(whole);
      find_batch_statistics<Chain, T>(whole, parallel, memory);
      means = memory.means<Compute<T>>();
      inverse_deviations = memory.inverse_deviations();
    }
  }
  in_wide_rows<T>(whole, [&](const Tail& tail, int times) {
    if constexpr (has_group_norm<Chain>)
      run_groups<Chain, T>(tail, parallel, times);
    else
      run_rows<Chain, T>(tail, parallel, times, means, inverse_deviations);
  });
}

template <class Chain>
const char* forward(const Tail& tail, void* stream) {
  const Parallel& parallel = *static_cast<const Parallel*>(stream);
  with_element(tail.element, [&]<class T>(Of<T>) { run<Chain, T>(tail, parallel); });
  return nullptr;
}

}  // namespace tailor::cpu::TAILOR_ISA
