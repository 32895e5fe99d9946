// Launches: one way for all kernels, and what has to be known of the device and of a kernel for it.
#pragma once
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

namespace tailor::cuda {

// Of the current device. Asked once a device: the driver answers in microseconds, a tail takes a few.
inline int processors() {
  static std::atomic<int> known[64];
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device < 0 || device >= 64) return 1;
  int count = known[device].load(std::memory_order_relaxed);
  if (count == 0) {
    if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess || count < 1) count = 1;
    known[device].store(count, std::memory_order_relaxed);
  }
  return count;
}

// How many blocks of a kernel a processor holds at a time: as many are launched as fit, each then marches far, and reads
// what belongs to its columns only once.
template <auto kernel, int threads>
int resident() {
  static std::atomic<int> known{0};
  int blocks = known.load(std::memory_order_relaxed);
  if (blocks == 0) {
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0) != cudaSuccess || blocks < 1)
      blocks = 1;
    known.store(blocks, std::memory_order_relaxed);
  }
  return blocks;
}

// Whether the code that runs here has wait_for_kernel_before(): it was compiled for Hopper or later.
template <auto kernel>
bool waits_by_itself() {
  static std::atomic<int> known{-1};
  int waits = known.load(std::memory_order_relaxed);
  if (waits < 0) {
    cudaFuncAttributes attributes{};
    waits = cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90 ? 1 : 0;
    known.store(waits, std::memory_order_relaxed);
  }
  return waits == 1;
}

template <auto kernel, class... Arguments>
void launch_with(dim3 grid, int threads, std::size_t shared_bytes, cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = waits_by_itself<kernel>() ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, arguments...);  // an error stays until launch_error() asks
}

template <auto kernel, class... Arguments>
void launch(dim3 grid, int threads, cudaStream_t stream, const Arguments&... arguments) {
  launch_with<kernel>(grid, threads, 0, stream, arguments...);
}

inline const char* launch_error() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

inline dim3 grid_of(std::int64_t x, std::int64_t y) { return {static_cast<unsigned>(x), static_cast<unsigned>(y)}; }

}  // namespace tailor::cuda
