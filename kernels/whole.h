// Kernels that compute a linear and its tail together, or what they can of it. Plain data: no torch, no CUDA.
#pragma once
#include <vector>

#include "tail.h"

namespace tailor {

// y = x · weightᵀ + bias. Both matrices have rows whose elements lie one after another, a transposed one has such columns;
// strides are those of the others, in elements.
struct Linear {
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;  // null where there is none
  std::int64_t inner = 0;      // columns of both
  std::int64_t x_stride = 0;
  std::int64_t weight_stride = 0;
  bool x_transposed = false;
  bool weight_transposed = false;
  bool tensor_float32 = false;     // whether float32 may be rounded to TF32
  bool split_float32 = true;       // whether float32 may be multiplied as sums of 16-bit numbers
  bool weight_is_settled = false;  // what is made of it is kept
  bool of_gradients = false;       // a product of a backward's: its numbers are of all magnitudes
  bool keeps_result = false;       // its own result is wanted besides the chain's, by a backward
  void* result = nullptr;          // where that goes, [rows][columns]
  void* workspace = nullptr;       // of as many bytes as `workspace` of WholeKernels asks for
  const void* kept = nullptr;      // what `keep` has made of this weight, or null
  const void* shared = nullptr;    // what `share` has made of x, or null
};

// What a kernel says whose blocks have to be there at the same time, where there is no room for them. It has done nothing.
inline constexpr char no_room[] = "the device has no room for all blocks at the same time";

struct WholeKernels {
  const char* path;  // under which calls() counts them
  // Why the kernels do not take this on the current device, or null. `out` is still to come, `y` is not used.
  const char* (*refuses)(const Linear& linear, const Tail& tail);
  std::int64_t (*workspace)(const Linear& linear, const Tail& tail) = nullptr;  // it needs none
  // What depends on the weight alone and may be kept from call to call: how many bytes, how it is made, and whether it may be
  // made and used on a stream now. Null where there is no such thing.
  std::int64_t (*kept_bytes)(const Linear& linear, const Tail& tail) = nullptr;
  const char* (*keep)(const Linear& linear, const Tail& tail, void* to, void* stream) = nullptr;
  bool (*may_keep)(void* stream) = nullptr;
  const char* (*forward)(const Linear& linear, const Tail& tail, void* stream);
  // Of two products that read the same x, the second transposed: how many bytes what both read of it takes, 0 where each had better
  // make its own, and how it is made, of the first. Null where there is no such thing.
  const char* sharing_path = nullptr;
  std::int64_t (*shared_bytes)(const Linear& linear, const Tail& tail, const Linear& transposed,
                               const Tail& its_tail) = nullptr;
  const char* (*share)(const Linear& linear, const Tail& tail, void* to, void* stream) = nullptr;
  // Of a batch norm with batch statistics, the linear alone, into `tail.out`; and what the tail's kernels would have to gather from
  // it, into their workspace, of so many rows each. Null where there is no such thing.
  const char* gathering_path = nullptr;
  int gathered_rows = 0;
  const char* (*refuses_gathering)(const Linear& linear, const Tail& tail) = nullptr;
  const char* (*gather)(const Linear& linear, const Tail& tail, void* stream) = nullptr;
};

// Called while the library is loaded.
struct WholeRegistration {
  WholeRegistration(std::string_view chain, Device device, const WholeKernels& kernels);
};
// Those of a chain, in the order of their registration.
std::vector<const WholeKernels*> find_whole(std::string_view chain, Device device);

}  // namespace tailor
