// What the host prepares for the copy engine: a description of each matrix, made anew for every call, so that none outlives the
// memory it describes.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../cuda/device.h"
#include "plan.h"

namespace tailor::hopper {

// The driver's function, found at run time: the library has to load where there is no driver.
inline auto encoder() {
  using Function = decltype(&cuTensorMapEncodeTiled);
  static const Function found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
    return reinterpret_cast<Function>(error == cudaSuccess && result == cudaDriverEntryPointSuccess ? function
                                                                                                    : nullptr);
  }();
  return found;
}

// A matrix that is copied in boxes of `box_rows` × `box_columns`, 128 bytes wide, which lie swizzled in shared memory. What is outside of the
// matrix reads as zero, and is not written.
inline bool describe(CUtensorMap& map, const Matrix& matrix, CUtensorMapDataType type, int box_rows, int box_columns) {
  const auto encode = encoder();
  if (encode == nullptr) return false;
  const cuuint64_t size[] = {static_cast<cuuint64_t>(matrix.columns), static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t stride[] = {static_cast<cuuint64_t>(matrix.stride * matrix.element_bytes)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t step[] = {1, 1};
  return encode(&map, type, 2, const_cast<void*>(matrix.data), size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Of the current device.
inline bool is_hopper() {
  static cuda::OfDevice of_device;
  constexpr int no = 1;
  constexpr int yes = 2;
  return of_device.get([](int device) {
    int major = 0;
    int minor = 0;
    const bool asked = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
                       cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess;
    return asked && major == 9 && minor == 0 && encoder() != nullptr ? yes : no;
  }) == yes;
}

// More than 48 KB of shared memory have to be asked for, once for each kernel and device.
template <auto kernel>
const char* allow_shared_memory(std::size_t bytes) {
  static cuda::OfDevice allowed;
  cudaError_t error = cudaSuccess;
  allowed.get([&](int) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    return error == cudaSuccess ? 1 : 0;
  });
  if (error == cudaSuccess) return nullptr;
  cudaGetLastError();  // or the next launch would be said to have failed
  return cudaGetErrorString(error);
}

}  // namespace tailor::hopper
