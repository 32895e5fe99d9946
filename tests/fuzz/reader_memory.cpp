#include "reader_memory.h"

#include <algorithm>
#include <cstddef>

// gcc brings no header that declares these.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void*, std::size_t),
                                              void (*freed)(const volatile void*));
int __sanitizer_get_ownership(const volatile void* memory);
std::size_t __sanitizer_get_allocated_size(const volatile void* memory);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace tailor::fuzz {
namespace {

std::int64_t now = 0, before = 0, most = 0;

void allocated(const volatile void*, std::size_t size) {
  now += static_cast<std::int64_t>(size);
  most = std::max(most, now);
}

void freed(const volatile void* memory) {
  if (memory != nullptr && __sanitizer_get_ownership(memory) != 0)
    now -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(memory));
}

}  // namespace

void watch_memory() {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(allocated, freed);
  static_cast<void>(installed);
  before = most = now;
}

std::uint64_t held_at_most() { return static_cast<std::uint64_t>(most - before); }

}  // namespace tailor::fuzz
