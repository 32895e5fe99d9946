// One chain's tail on the CPU, for one set of instructions.
#pragma once
#include "batch.h"
#include "groups.h"
#include "rows.h"

namespace tailor::cpu::TAILOR_ISA {

// A batch so small that a strip of its columns is no more than a thread's share is finished strip by strip, while that is in
// the cache: the threads are woken once.
inline constexpr int strip_width = 128;
static_assert(strip_width <= gathering_width);

inline bool is_cut_into_strips(const Tail& tail) {
  return tail.rows * strip_width <= elements_per_thread && tail.columns >= strip_width;
}

template <class Chain, class T>
void run_strips(const Tail& tail, const Parallel& parallel) {
  const BatchMemory memory(tail);
  const std::int64_t chunks = chunks_of(tail.rows).count;
  const auto finish_strip = [&](std::int64_t first, int count, std::int64_t, std::int64_t) {
    gather<Chain, T>(tail, memory, first, count, 0, chunks);
    conclude<T>(tail, memory, first, count);
    finish_block<Chain, T>(tail, first, count, 0, tail.rows, 1, memory.means<Compute<T>>(),
                           memory.inverse_deviations());
  };
  for_each_block(parallel, 1, tail.columns, strip_width, ceiling(elements_per_thread, tail.rows), finish_strip);
}

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
