// Launches: one way for all kernels, and what has to be known of a kernel for it.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "../whole.h"
#include "device.h"

namespace tailor::cuda {

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
