// All six formulas in device code, by nvcc and without torch: each value, each name, and the statistics of the norm, which
// a kernel needs before it can go on. On a machine with a GPU they are computed there and on the host and compared bit
// for bit; the numbers are chosen so that every result is exact. Exits with 77, which CTest counts as skipped, without one.
#include <cuda_runtime.h>

#include <cstdio>
#include <string_view>

#include "kernels/chains.h"

namespace {

using namespace tailor;

constexpr int rows = 4;  // what a norm takes together
constexpr int columns = 8;
constexpr int numbers_per_chain = 4;

// What a formula asks for by name.
struct Arguments {
  float scale, addend, factor, divisor;
};

// nvcc 13.0 refuses to read a name in device code, and where a copy of it hides that, compiles a read of the host's memory.
// What is derived from a name at compile time, as a number, it takes.
constexpr std::string_view known_names[] = {"scale", "addend", "factor", "divisor"};

constexpr int index_of(std::string_view name) {
  for (int i = 0; i < 4; ++i)
    if (known_names[i] == name) return i;
  return -1;
}

constexpr unsigned checksum(std::string_view name) {
  unsigned sum = 0;
  for (const char c : name) sum = sum * 31 + static_cast<unsigned char>(c);
  return sum;
}

template <class Named>
constexpr int index_of_name = index_of(Named::name.view());
template <class Named>
constexpr unsigned checksum_of_name = checksum(Named::name.view());

template <class Named>
__host__ __device__ constexpr float argument_of(const Arguments& arguments) {
  static_assert(index_of_name<Named> >= 0, "a name that no chain has");
  if constexpr (index_of_name<Named> == 0) return arguments.scale;
  if constexpr (index_of_name<Named> == 1) return arguments.addend;
  if constexpr (index_of_name<Named> == 2) return arguments.factor;
  if constexpr (index_of_name<Named> == 3) return arguments.divisor;
}

// Interprets a formula in floats. The activations are polynomials: this tests the fold and not the exponential.
struct Pointwise {
  float y;
  Arguments arguments;
  float mean = 0;         // of what the norm reads
  float before_norm = 0;  // what the norm reads: the phase that gathers statistics stops here
  unsigned names = 0;     // a checksum of the names, in their order
  int norms = 0;

  template <class Named>
  __host__ __device__ constexpr float read() {
    names = names * 31 + checksum_of_name<Named>;
    return argument_of<Named>(arguments);
  }
  __host__ __device__ constexpr float linear() { return y; }
  template <class V>
  __host__ __device__ constexpr float vector(V) {
    return read<V>();
  }
  template <class S>
  __host__ __device__ constexpr float scalar(S) {
    return read<S>();
  }
  __host__ __device__ constexpr float add(float a, float b) { return a + b; }
  __host__ __device__ constexpr float mul(float a, float b) { return a * b; }
  __host__ __device__ constexpr float div(float a, float b) { return a / b; }
  __host__ __device__ constexpr float sigmoid(float a) { return a + 1; }
  __host__ __device__ constexpr float swish(float a) { return a * 2 - 1; }
  __host__ __device__ constexpr float batch_norm(float a) { return norm(a) * 2; }
  __host__ __device__ constexpr float group_norm(float a) { return norm(a) * 4; }
  __host__ __device__ constexpr float norm(float a) {
    before_norm = a;
    ++norms;
    return a - mean;
  }
};

__host__ __device__ inline float y_of(int row, int column) { return static_cast<float>(row * 3 + column); }
__host__ __device__ inline Arguments arguments_of(int column) { return {0.5f * static_cast<float>(column), 3, 2, 4}; }

// One column of a chain: a first pass over the rows for the norm's mean, a second for the values.
template <class Chain>
__host__ __device__ void column_of(int column, float* out) {
  float sum = 0;
  for (int row = 0; row < rows; ++row) {
    Pointwise f{y_of(row, column), arguments_of(column)};
    Formula<Chain>::fold(f);
    sum += f.before_norm;
  }
  for (int row = 0; row < rows; ++row) {
    Pointwise f{y_of(row, column), arguments_of(column), sum / rows};
    float* numbers = out + (row * columns + column) * numbers_per_chain;
    numbers[0] = Formula<Chain>::fold(f);
    numbers[1] = f.before_norm;
    numbers[2] = static_cast<float>(f.names % 65536);
    numbers[3] = static_cast<float>(f.norms);
  }
}

template <class Chain>
__global__ void column_per_thread(float* out) {
  column_of<Chain>(static_cast<int>(threadIdx.x), out);
}

bool succeeded(cudaError_t error, const char* what) {
  if (error != cudaSuccess) std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  return error == cudaSuccess;
}

// How many numbers of a chain differ between device and host, -1 where CUDA failed.
template <class Chain>
int differences() {
  constexpr int count = rows * columns * numbers_per_chain;
  float host[count];
  float device[count];
  for (int column = 0; column < columns; ++column) column_of<Chain>(column, host);
  float* memory = nullptr;
  if (!succeeded(cudaMalloc(&memory, sizeof device), "cudaMalloc")) return -1;
  column_per_thread<Chain><<<1, columns>>>(memory);
  const bool ran = succeeded(cudaGetLastError(), "launch") &&
                   succeeded(cudaMemcpy(device, memory, sizeof device, cudaMemcpyDeviceToHost), "cudaMemcpy");
  cudaFree(memory);
  if (!ran) return -1;
  int different = 0;
  for (int i = 0; i < count; ++i) different += !(host[i] == device[i]);
  std::printf("%.*s: %d of %d numbers differ\n", static_cast<int>(Chain::name.size()), Chain::name.data(), different,
              count);
  return different;
}

// The host's own results, so that both cannot be wrong together: row 1 of column 2 has y = 5, scale 1, addend 3, factor 2,
// divisor 4. Over the rows y is 2, 5, 8, 11.
template <class Chain>
bool host_is_right(float wanted, float wanted_before_norm, int wanted_norms) {
  float out[rows * columns * numbers_per_chain] = {};
  column_of<Chain>(2, out);
  const float* numbers = out + (1 * columns + 2) * numbers_per_chain;
  const bool right =
      numbers[0] == wanted && numbers[1] == wanted_before_norm && numbers[3] == static_cast<float>(wanted_norms);
  if (!right)
    std::fprintf(stderr, "%.*s on the host: %g and %g, wanted %g and %g\n", static_cast<int>(Chain::name.size()),
                 Chain::name.data(), numbers[0], numbers[1], wanted, wanted_before_norm);
  return right;
}

}  // namespace

int main() {
  using namespace tailor::chains;
  const bool host = host_is_right<linear_mul_batch_norm>(-3, 5, 1) &&             // (5 - 6.5) * 2
                    host_is_right<linear_sigmoid_mul_add>(17, 0, 0) &&            // (5 + 1) * 2 + 5
                    host_is_right<linear_add_swish_group_norm>(-12, 15, 1) &&     // 2(5 + 3) - 1 = 15, mean 18
                    host_is_right<linear_swish_add_group_norm>(-12, 12, 1) &&     // 2·5 - 1 + 3 = 12, mean 15
                    host_is_right<linear_batch_norm_add_div_swish>(-1, 5, 1) &&   // ((-3 + 3) / 4) * 2 - 1
                    host_is_right<linear_group_norm_swish_mul_swish>(-27, 5, 1);  // 2(2(-6) - 1) - 1
  if (!host) return 1;

  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: there is no GPU here. The formulas compiled for it.\n");
    return 77;
  }
  const int wrong[] = {
      differences<linear_mul_batch_norm>(),           differences<linear_sigmoid_mul_add>(),
      differences<linear_add_swish_group_norm>(),     differences<linear_swish_add_group_norm>(),
      differences<linear_batch_norm_add_div_swish>(), differences<linear_group_norm_swish_mul_swish>()};
  for (const int count : wrong)
    if (count != 0) return 1;
  return 0;
}
