// The kernels of one chain for the CPU, of which the best is taken that the machine can run. A generated file for each
// chain (CMakeLists.txt) says
//
//   static const tailor::TailRegistration registration = tailor::cpu::register_chain<tailor::chains::…>();
#pragma once
#include "../split.h"
#include "isa.h"
#include "share.h"

namespace tailor::cpu {

// Compiled from isa.cpp.in, each with its own instructions.
#define TAILOR_COMPILED_FOR(isa)                                                      \
  namespace isa {                                                                     \
  template <class Chain>                                                              \
  const char* forward(const Tail& tail, void* stream);                                \
  template <class Chain>                                                              \
  const char* backward(const Tail& tail, const TailGradient& gradient, void* stream); \
  template <class Chain>                                                              \
  std::int64_t backward_workspace(const Tail& tail);                                  \
  }
TAILOR_COMPILED_FOR(baseline)
TAILOR_COMPILED_FOR(avx2)
TAILOR_COMPILED_FOR(avx512)
#undef TAILOR_COMPILED_FOR

template <class Chain>
const char* refuses(const Tail& tail, bool) {
  if (tail.columns >= (std::int64_t{1} << 31)) return "it has more columns than an int can count";
  // A vector would be all but empty. Measured: up to 1.4 times eager's time there, and less than it from 4 columns on.
  const bool in_16_bits = tail.element == Element::bfloat16 || tail.element == Element::float16;
  if (has_batch_norm<Chain> && tail.norm.batch_statistics && in_16_bits && tail.columns < 4 && tail.rows > 256)
    return "batch statistics of so few columns in 16 bits are quicker one by one";
  return nullptr;
}

template <class Chain>
std::int64_t workspace(const Tail& tail) {
  return has_batch_norm<Chain> && tail.norm.batch_statistics ? statistics_bytes(tail) : 0;
}

template <class Chain>
TailKernels kernels_for(Isa isa) {
#define TAILOR_KERNELS(isa)                                                             \
  {                                                                                     \
    "cpu", "cpu_backward", true, refuses<Chain>, workspace<Chain>, isa::forward<Chain>, \
        isa::backward_workspace<Chain>, isa::backward<Chain>                            \
  }
#if defined(__x86_64__)
  if (isa == Isa::avx512) return TAILOR_KERNELS(avx512);
  if (isa == Isa::avx2) return TAILOR_KERNELS(avx2);
#endif
  static_cast<void>(isa);
  return TAILOR_KERNELS(baseline);
#undef TAILOR_KERNELS
}

template <class Chain>
TailRegistration register_chain() {
  static const TailKernels kernels = kernels_for<Chain>(best_isa());
  return {Chain::name, Device::cpu, kernels};
}

}  // namespace tailor::cpu
