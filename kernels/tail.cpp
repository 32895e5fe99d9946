#include "tail.h"

#include <vector>

#include "whole.h"

namespace tailor {
namespace {

template <class Kernels>
struct Entry {
  std::string_view chain;
  Device device;
  const Kernels* kernels;
};

template <class Kernels>
std::vector<Entry<Kernels>>& registry() {
  static std::vector<Entry<Kernels>> all;
  return all;
}

template <class Kernels>
const Kernels* find(std::string_view chain, Device device) {
  for (const Entry<Kernels>& entry : registry<Kernels>())
    if (entry.chain == chain && entry.device == device) return entry.kernels;
  return nullptr;
}

}  // namespace

TailRegistration::TailRegistration(std::string_view chain, Device device, const TailKernels& kernels) {
  registry<TailKernels>().push_back({chain, device, &kernels});
}

WholeRegistration::WholeRegistration(std::string_view chain, Device device, const WholeKernels& kernels) {
  registry<WholeKernels>().push_back({chain, device, &kernels});
}

const TailKernels* find_tail(std::string_view chain, Device device) { return find<TailKernels>(chain, device); }
const WholeKernels* find_whole(std::string_view chain, Device device) { return find<WholeKernels>(chain, device); }

}  // namespace tailor
