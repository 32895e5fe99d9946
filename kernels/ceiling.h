// How many times b goes into a, a rest counted as once more.
#pragma once
#include <cstdint>

#include "arithmetic.h"

namespace tailor {

// Always inlined: the same lines are compiled for several sets of instructions.
constexpr TAILOR_INLINE std::int64_t ceiling(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace tailor
