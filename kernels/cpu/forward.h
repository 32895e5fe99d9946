// One chain's tail on the CPU, for one set of instructions.
#pragma once
#include "batch.h"
#include "groups.h"
#include "rows.h"

namespace tailor::cpu::TAILOR_ISA {

template <class Chain, class T>
void run(const Tail& tail, const Parallel& parallel) {
  if constexpr (has_group_norm<Chain>) {
    run_groups<Chain, T>(tail, parallel);
  } else if (has_batch_norm<Chain> && tail.norm.batch_statistics) {
    const BatchMemory memory(tail);
    find_batch_statistics<Chain, T>(tail, parallel, memory);
    run_rows<Chain, T>(tail, parallel, memory.means<Compute<T>>(), memory.inverse_deviations());
  } else {
    run_rows<Chain, T>(tail, parallel, nullptr, nullptr);
  }
}

template <class Chain>
const char* forward(const Tail& tail, void* stream) {
  const Parallel& parallel = *static_cast<const Parallel*>(stream);
  switch (tail.element) {
    case Element::float64:
      run<Chain, double>(tail, parallel);
      break;
    case Element::float32:
      run<Chain, float>(tail, parallel);
      break;
    case Element::bfloat16:
      run<Chain, BFloat16>(tail, parallel);
      break;
    case Element::float16:
      run<Chain, Float16>(tail, parallel);
      break;
  }
  return nullptr;
}

}  // namespace tailor::cpu::TAILOR_ISA
