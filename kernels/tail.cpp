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
std::vector<const Kernels*> find(std::string_view chain, Device device) {
  std::vector<const Kernels*> found;
  for (const Entry<Kernels>& entry : registry<Kernels>())
    if (entry.chain == chain && entry.device == device) found.push_back(entry.kernels);
  return found;
}

}  // namespace

TailRegistration::TailRegistration(std::string_view chain, Device device, const TailKernels& kernels) {
  registry<TailKernels>().push_back({chain, device, &kernels});
}

WholeRegistration::WholeRegistration(std::string_view chain, Device device, const WholeKernels& kernels) {
  registry<WholeKernels>().push_back({chain, device, &kernels});
}

const TailKernels* find_tail(std::string_view chain, Device device) {
  const auto found = find<TailKernels>(chain, device);
  return found.empty() ? nullptr : found.front();
}
std::vector<const WholeKernels*> find_whole(std::string_view chain, Device device) {
  return find<WholeKernels>(chain, device);
}

}  // namespace tailor
