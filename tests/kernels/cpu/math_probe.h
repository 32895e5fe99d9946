// The functions of kernels/cpu/math.h and lanes.h over arrays, compiled once for each set of instructions.
#pragma once
#include <cstdint>

#include "kernels/cpu/isa.h"

namespace tailor::test {

struct Probe {
  cpu::Isa isa;
  const char* name;
  // count is a multiple of 16
  void (*sigmoid)(const float* from, float* to, std::int64_t count);
  void (*swish)(const float* from, float* to, std::int64_t count);
  void (*sigmoid_double)(const double* from, double* to, std::int64_t count);
  void (*swish_double)(const double* from, double* to, std::int64_t count);
  void (*quick_sigmoid)(const float* from, float* to, std::int64_t count);
  void (*quick_swish)(const float* from, float* to, std::int64_t count);
  void (*from_bfloat16)(const std::uint16_t* from, float* to, std::int64_t count);
  void (*to_bfloat16)(const float* from, std::uint16_t* to, std::int64_t count);
  void (*from_float16)(const std::uint16_t* from, float* to, std::int64_t count);
  void (*to_float16)(const float* from, std::uint16_t* to, std::int64_t count);
};

extern const Probe probe_baseline;
extern const Probe probe_avx2;
extern const Probe probe_avx512;

}  // namespace tailor::test
