// Apart from its header so that <atomic>, which takes the compiler a second, is not read for every chain.
#include "device.h"

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

namespace tailor::cuda {

int OfDevice::current() {
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess ? device : devices;  // where that is not said, nothing is kept
}
int OfDevice::known(int device) {
  if (device >= devices) return 0;
  return std::atomic_ref(answers_[device]).load(std::memory_order_relaxed);
}
void OfDevice::keep(int device, int answer) {
  if (device < devices) std::atomic_ref(answers_[device]).store(answer, std::memory_order_relaxed);
}

int processors() {
  static OfDevice of_device;
  return of_device.get([](int device) {
    int count = 0;
    return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) == cudaSuccess && count > 0 ? count
                                                                                                              : 1;
  });
}

int memory_rate() {
  static OfDevice of_device;
  const int rate = of_device.get([](int device) {
    int kilohertz = 0;
    int bits = 0;
    if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device) != cudaSuccess)
      return -1;
    const std::int64_t twice_a_clock = 2 * std::int64_t{kilohertz} * (bits / 8) / 1000;
    return twice_a_clock > 0 ? static_cast<int>(twice_a_clock) : -1;
  });
  return rate > 0 ? rate : 0;
}

}  // namespace tailor::cuda
