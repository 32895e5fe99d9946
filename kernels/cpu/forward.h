// One chain's tail on the CPU, for one set of instructions.
#pragma once
#include "batch.h"
#include "groups.h"
#include "rows.h"

namespace tailor::cpu::TAILOR_ISA {

// Calls work(tail, times), where a row of the tail is `times` rows: narrow ones are taken together, the last few alone.
template <class T, class Work>
void in_wide_rows(const Tail& tail, Work work) {
  const int times = rows_in_one(tail.columns, lanes<Compute<T>>, block_width<Compute<T>>);
  const std::int64_t rows = times > 1 ? tail.rows / times : 0;
  if (rows > 0) {
    Tail wide = tail;
    wide.rows = rows;
    wide.columns *= times;
    wide.norm.groups *= times;
    work(wide, times);
  }
  Tail rest = tail;
  const std::int64_t done = rows * times;
  rest.rows -= done;
  rest.y = raw<T>(tail.y) + done * tail.columns;
  rest.out = static_cast<Raw<T>*>(tail.out) + done * tail.columns;
  if (rest.rows > 0) work(rest, 1);
}

template <class Chain, class T>
void run(const Tail& whole, const Parallel& parallel) {
  const Compute<T>* means = nullptr;
  const double* inverse_deviations = nullptr;
  if (has_batch_norm<Chain> && whole.norm.batch_statistics) {
    const BatchMemory memory(whole);
    find_batch_statistics<Chain, T>(whole, parallel, memory);
    means = memory.means<Compute<T>>();
    inverse_deviations = memory.inverse_deviations();
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
