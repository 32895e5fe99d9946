// The kernels of one chain: which one takes a call, and its launch. A generated file for each chain (CMakeLists.txt) says
//
//   static const tailor::TailRegistration registration = tailor::cuda::register_chain<tailor::chains::…>();
#pragma once
#include <atomic>

#include "rows.cuh"
#include "wide.cuh"

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

inline bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

// Whether everything that is read along a row can be read 16 bytes at a time.
inline bool in_packets(const Tail& tail, std::int64_t group_width, int width) {
  bool all = group_width % width == 0 && tail.columns % width == 0 && aligned(tail.y) && aligned(tail.out);
  for (const Operand& vector : tail.vectors) all = all && (!vector.per_column || aligned(vector.data));
  const NormArguments& norm = tail.norm;
  return all && aligned(norm.weight) && aligned(norm.bias) && aligned(norm.mean) && aligned(norm.var);
}

template <class Chain, class T>
struct Launch {
  const Tail& tail;
  cudaStream_t stream;

  static constexpr int rows_at_once = 4;
  // A thread that keeps its operands holds one packet, one that fetches them four.
  static constexpr int many = 4;
  static constexpr int most_lanes = 256;

  std::int64_t group_width(int width) const { return has_group_norm<Chain> ? tail.columns / tail.norm.groups : width; }

  void run() const {
    constexpr int width = elements_in_16_bytes<T>;
    if (in_packets(tail, group_width(width), width))
      run_with<width>();
    else
      run_with<1>();
  }

  template <int Width>
  void run_with() const {
    if constexpr (has_batch_norm<Chain>) {
      if (tail.norm.batch_statistics) gather<Width>();
    }
    const std::int64_t packets = group_width(Width) / Width;
    if constexpr (has_group_norm<Chain>) {
      if (packets > many * most_lanes) return wide<Width>();
      if (packets > 32) return rows<Width, many, 1>(next_power_of_two(ceiling(packets, many)));
    }
    rows<Width, 1, rows_at_once>(next_power_of_two(packets));
  }

  template <int Width, int Loads, int Rows>
  void rows(int lanes) const {
    const Layout layout = lay_out(tail.rows, tail.columns, group_width(Width), lanes, Rows, processors());
    const dim3 grid(static_cast<unsigned>(layout.column_blocks), static_cast<unsigned>(layout.row_blocks));
    rows_kernel<Chain, T, Rows, Width, Loads><<<grid, layout.threads, 0, stream>>>(tail, layout);
  }

  template <int Width>
  void gather() const {
    const Gathering gathering = share_out(tail.rows, tail.columns, Width);
    const dim3 grid(static_cast<unsigned>(ceiling(tail.columns, gathering.lanes * Width)),
                    static_cast<unsigned>(gathering.chunks));
    gather_kernel<Chain, T, rows_at_once, Width><<<grid, gathering_threads, 0, stream>>>(tail, gathering);
  }

  template <int Width>
  void wide() const {
    const std::int64_t groups = tail.rows * tail.norm.groups;
    const unsigned grid = static_cast<unsigned>(groups < 0x7fffffff ? groups : 0x7fffffff);
    wide_kernel<Chain, T, Width><<<grid, wide_threads, 0, stream>>>(tail);
  }
};

template <class Chain>
const char* refuses(const Tail& tail) {
  // A grid's x dimension holds 2^31 blocks, far more columns than memory; nothing else is bounded.
  if (tail.columns >= (std::int64_t{1} << 31)) return "it has more columns than a grid can have blocks";
  return nullptr;
}

template <class Chain>
std::int64_t workspace(const Tail& tail) {
  if (!has_batch_norm<Chain> || !tail.norm.batch_statistics) return 0;
  // For either width, since alignment is not known yet.
  const int most = share_out(tail.rows, tail.columns, 1).chunks > share_out(tail.rows, tail.columns, 8).chunks
                       ? share_out(tail.rows, tail.columns, 1).chunks
                       : share_out(tail.rows, tail.columns, 8).chunks;
  const std::int64_t number = tail.element == Element::float64 ? 8 : 4;
  return 2 * most * tail.columns * number;
}

template <class Chain>
const char* forward(const Tail& tail, void* stream_handle) {
  auto* stream = static_cast<cudaStream_t>(stream_handle);
  switch (tail.element) {
    case Element::float64:
      Launch<Chain, double>{tail, stream}.run();
      break;
    case Element::float32:
      Launch<Chain, float>{tail, stream}.run();
      break;
    case Element::bfloat16:
      Launch<Chain, __nv_bfloat16>{tail, stream}.run();
      break;
    case Element::float16:
      Launch<Chain, __half>{tail, stream}.run();
      break;
  }
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

template <class Chain>
TailRegistration register_chain() {
  static const TailKernels kernels{"cuda", refuses<Chain>, workspace<Chain>, forward<Chain>};
  return {Chain::name, Device::cuda, kernels};
}

}  // namespace tailor::cuda
