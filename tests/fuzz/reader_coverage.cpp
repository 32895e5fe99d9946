#include "reader_coverage.h"

// NOLINTNEXTLINE(bugprone-reserved-identifier): the name is the linker's
extern "C" const char __executable_start;

namespace tailor::fuzz {

std::array<std::uint8_t, edges> counters{};
std::vector<Compared> comparisons;

namespace {

void compared(std::uint64_t a, std::uint64_t b, int size) {
  constexpr std::size_t most = 512;
  if (a != b && comparisons.size() < most) comparisons.push_back({a, b, size});
}

}  // namespace
}  // namespace tailor::fuzz

using tailor::fuzz::compared;

// The names are those that the compiler calls.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

void __sanitizer_cov_trace_pc() {
  // Counted from where the program begins, which the kernel draws anew: the same edges in every run.
  const auto from = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)) -
                    reinterpret_cast<std::uintptr_t>(&__executable_start);
  std::uint8_t& counter = tailor::fuzz::counters[(from ^ from >> 16) % tailor::fuzz::edges];
  if (counter != 0xff) ++counter;
}

void __sanitizer_cov_trace_cmp1(std::uint8_t a, std::uint8_t b) { compared(a, b, 1); }
void __sanitizer_cov_trace_cmp2(std::uint16_t a, std::uint16_t b) { compared(a, b, 2); }
void __sanitizer_cov_trace_cmp4(std::uint32_t a, std::uint32_t b) { compared(a, b, 4); }
void __sanitizer_cov_trace_cmp8(std::uint64_t a, std::uint64_t b) { compared(a, b, 8); }
void __sanitizer_cov_trace_const_cmp1(std::uint8_t a, std::uint8_t b) { compared(a, b, 1); }
void __sanitizer_cov_trace_const_cmp2(std::uint16_t a, std::uint16_t b) { compared(a, b, 2); }
void __sanitizer_cov_trace_const_cmp4(std::uint32_t a, std::uint32_t b) { compared(a, b, 4); }
void __sanitizer_cov_trace_const_cmp8(std::uint64_t a, std::uint64_t b) { compared(a, b, 8); }
void __sanitizer_cov_trace_cmpf(float, float) {}
void __sanitizer_cov_trace_cmpd(double, double) {}

// How many cases, of how many bits, and then each case.
void __sanitizer_cov_trace_switch(std::uint64_t value, const std::uint64_t* cases) {
  for (std::uint64_t i = 0; i < cases[0]; ++i) compared(cases[2 + i], value, static_cast<int>(cases[1] / 8));
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
