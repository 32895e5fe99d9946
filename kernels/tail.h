// What a tail kernel is given, and how the layers above find it. Plain data: no torch, no CUDA.
//
// A tail kernel takes the linear's result `y`, rows × columns, contiguous, and writes the chain's result beside it or over
// it. Everything has one element type; arithmetic is done in float, for float64 in double.
#pragma once
#include <cstdint>
#include <string_view>

namespace tailor {

enum class Element : std::uint8_t { float64, float32, bfloat16, float16 };

inline constexpr int max_operands = 2;  // vectors, and numbers, that a formula may have for a kernel to take it

// A vector of the formula, one value per column or one for all.
struct Operand {
  const void* data = nullptr;
  bool per_column = false;
};

struct NormArguments {
  const void* weight = nullptr;  // null where the norm has none
  const void* bias = nullptr;
  double eps = 0;
  std::int64_t groups = 0;  // group norm
  // Batch norm. With batch statistics `mean` and `var` are written, where there are any; without, they are read.
  bool batch_statistics = false;
  double momentum = 0;
  void* mean = nullptr;
  void* var = nullptr;
  // With batch statistics: the kernel's own, [2][columns], mean and 1 / sqrt(var + eps), in the type it computes in.
  void* saved = nullptr;
  // Where partial statistics are put down: as many bytes as `workspace` of TailKernels asks for.
  void* workspace = nullptr;
  // Of how many rows each are those that the linear's kernel has put there already. 0: the tail's kernels have to.
  int gathered_rows = 0;
};

struct Tail {
  Element element = Element::float32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const void* y = nullptr;
  void* out = nullptr;         // may be y
  const void* bias = nullptr;  // the linear's, per column, where `y` is without it
  Operand vectors[max_operands];
  double scalars[max_operands] = {};
  NormArguments norm;
};

// What the backward computes besides, from a Tail whose `y` is forward's and whose `norm.saved` holds what forward saved.
struct TailGradient {
  const void* of_out = nullptr;
  void* of_y = nullptr;
  // Sums over the rows, in the element type, null where nobody asks: [columns], of a vector that is one value for all columns
  // one number.
  void* of_bias = nullptr;
  void* of_vectors[max_operands] = {};
  void* of_norm_weight = nullptr;
  void* of_norm_bias = nullptr;
  void* workspace = nullptr;
};

// Lends the threads of the layer above: calls body(context, first, last) for pieces of [0, count), none much smaller than
// `grain`, and returns when all are done.
struct Parallel {
  using Body = void (*)(std::int64_t first, std::int64_t last, void* context);
  void (*run)(std::int64_t count, std::int64_t grain, Body body, void* context);
};

// The kernels of one chain on one kind of device. Those that run return null, or what went wrong; `stream` is the
// device's current one, on the CPU a `const Parallel*`.
struct TailKernels {
  const char* path;           // under which calls() counts them
  const char* backward_path;  // null where there is no backward
  bool adds_bias;             // forward takes a `y` without the linear's bias
  // Why the kernels do not take this, in a user's words, or null. `y` and `out` are still to come; they and all gradients
  // will be aligned to 16 bytes.
  const char* (*refuses)(const Tail& tail, bool with_backward);
  std::int64_t (*workspace)(const Tail& tail);
  const char* (*forward)(const Tail& tail, void* stream);
  std::int64_t (*backward_workspace)(const Tail& tail);
  const char* (*backward)(const Tail& tail, const TailGradient& gradient, void* stream);
};

enum class Device : std::uint8_t { cpu, cuda };

// Called while the library is loaded, once for each chain and device that has kernels.
struct TailRegistration {
  TailRegistration(std::string_view chain, Device device, const TailKernels& kernels);
};
const TailKernels* find_tail(std::string_view chain, Device device);

}  // namespace tailor
