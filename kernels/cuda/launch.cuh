// Launches: one way for all kernels, and what has to be known of the device and of a kernel for it.
#pragma once
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "../whole.h"

namespace tailor::cuda {

// What is known of each device: asked once, since the driver answers in microseconds and a tail takes a few.
struct OfDevice {
  std::atomic<int> known[64]{};  // 0: not asked

  // Of the current device. `ask(device)` gives a positive number.
  template <class Ask>
  int get(Ask ask) {
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || device < 0 || device >= 64) return ask(device);
    int value = known[device].load(std::memory_order_relaxed);
    if (value == 0) {
      value = ask(device);
      known[device].store(value, std::memory_order_relaxed);
    }
    return value;
  }
};

inline int processors() {
  static OfDevice of_device;
  return of_device.get([](int device) {
    int count = 0;
    return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) == cudaSuccess && count > 0 ? count
                                                                                                              : 1;
  });
}

// What the memory brings at most, in bytes a microsecond; 0 if the driver does not say.
inline int memory_rate() {
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

// How many blocks of a kernel a processor holds at a time: as many are launched as fit, each then marches far, and reads
// what belongs to its columns only once.
template <auto kernel, int threads>
int resident() {
  static OfDevice of_device;
  return of_device.get([](int) {
    int blocks = 0;
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0) == cudaSuccess && blocks > 0
               ? blocks
               : 1;
  });
}

// How many clusters of a kernel the device holds at a time, if nothing else is there; 0 if the driver does not say.
template <auto kernel>
int clusters_at_once(int threads, std::size_t shared_bytes, int of_cluster) {
  static OfDevice of_device;
  return of_device.get([&](int) {
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(of_cluster);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(of_cluster));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared_bytes;
    config.attrs = &cluster;
    config.numAttrs = 1;
    int clusters = 0;
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess) return clusters;
    cudaGetLastError();  // or the next launch would be said to have failed
    return 0;
  });
}

// Whether the code that runs here has wait_for_kernel_before(): it was compiled for Hopper or later.
template <auto kernel>
bool waits_by_itself() {
  static OfDevice of_device;
  constexpr int no = 1;
  constexpr int yes = 2;
  return of_device.get([](int) {
    cudaFuncAttributes attributes{};
    return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90 ? yes : no;
  }) == yes;
}

struct Blocks {
  dim3 grid;
  int threads = 0;
  std::size_t shared_bytes = 0;
  int of_cluster = 0;        // none: a block by itself
  bool all_at_once = false;  // the kernel's blocks wait for each other
};

template <auto kernel, class... Arguments>
void launch_with(const Blocks& blocks, cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = blocks.grid;
  config.blockDim = dim3(static_cast<unsigned>(blocks.threads));
  config.dynamicSmemBytes = blocks.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2]{};
  config.attrs = attributes;
  if (blocks.all_at_once) {
    cudaLaunchAttribute& together = attributes[config.numAttrs++];
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
  } else if (waits_by_itself<kernel>()) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (blocks.of_cluster > 0) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(blocks.of_cluster);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  cudaLaunchKernelEx(&config, kernel, arguments...);  // an error stays until launch_error() asks
}

template <auto kernel, class... Arguments>
void launch(dim3 grid, int threads, cudaStream_t stream, const Arguments&... arguments) {
  launch_with<kernel>({grid, threads}, stream, arguments...);
}

inline const char* launch_error() {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaErrorCooperativeLaunchTooLarge) return no_room;
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

inline dim3 grid_of(std::int64_t x, std::int64_t y) { return {static_cast<unsigned>(x), static_cast<unsigned>(y)}; }

}  // namespace tailor::cuda
