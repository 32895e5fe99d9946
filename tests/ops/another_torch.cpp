// Preloaded by version_test.py: makes this process's torch say that it is another version.
#include <cstdint>

extern "C" std::uint64_t aoti_torch_abi_version() {
  return std::uint64_t{1} << 56 | std::uint64_t{2} << 48 | std::uint64_t{3} << 40;
}
