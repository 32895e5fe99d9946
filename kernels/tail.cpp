#include "tail.h"

#include <vector>

namespace tailor {
namespace {

struct Entry {
  std::string_view chain;
  Device device;
  const TailKernels* kernels;
};

std::vector<Entry>& registry() {
  static std::vector<Entry> all;
  return all;
}

}  // namespace

TailRegistration::TailRegistration(std::string_view chain, Device device, const TailKernels& kernels) {
  registry().push_back({chain, device, &kernels});
}

const TailKernels* find_tail(std::string_view chain, Device device) {
  for (const Entry& entry : registry())
    if (entry.chain == chain && entry.device == device) return entry.kernels;
  return nullptr;
}

}  // namespace tailor
