// What a run of the instrumented reader went through: gcc calls these functions at each edge and each comparison.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tailor::fuzz {

constexpr std::size_t edges = 1 << 16;

// Two numbers that a run compared and found different, for a mutation to put one in place of the other.
struct Compared {
  std::uint64_t a = 0, b = 0;
  int size = 0;  // in bytes
};

// Of the present run; cleared by the caller.
extern std::array<std::uint8_t, edges> counters;
extern std::vector<Compared> comparisons;

}  // namespace tailor::fuzz
