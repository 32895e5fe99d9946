// How much memory the reader holds. The sanitizer tells of each allocation; what it needs itself does not count.
#pragma once
#include <cstdint>

namespace tailor::fuzz {

// From here on.
void watch_memory();

// The most bytes that were held at once since then, beyond those of then.
std::uint64_t held_at_most();

}  // namespace tailor::fuzz
