// Makes halves for two products (shared_halves.h). A block goes down the matrix, a row at a time, so that a thread has the same columns of
// each: it counts for itself, and what is rare it adds up for all at once.
#include "shared_halves.h"

#include "../ceiling.h"
#include "../cuda/launch.cuh"
#include "ptx.cuh"
#include "row_of_block.cuh"

namespace tailor::hopper {
namespace {

constexpr int own_columns = shared_columns_of_thread;
constexpr int own_packets = own_columns / packet;
constexpr float units_of_rest = 0x1p40f;

// Flags that only columns have.
constexpr Flags some_there = 32;  // a number is not zero
constexpr Flags some_lost = 64;   // nor are there halves of it

// A row's power of two. One below the least that halves are of use for has the least: the row's own results are computed again, and beside
// other rows it is next to nothing.
struct ScaleOfLine : Scale {
  __device__ __forceinline__ explicit ScaleOfLine(std::uint32_t largest) : Scale(largest) {
    if (largest >= static_cast<std::uint32_t>(127 + least_exponent) << 23) return;
    static_assert(top_exponent - least_exponent == 90);
    constexpr float least = 0x1p90f;
    up = least;
    down = largest == 0 ? 0 : 1 / least;
  }
  __device__ __forceinline__ bool has_halves() const { return up != 0; }
};

// A thread's columns, all rows of its block.
class OwnColumns {
 public:
  __device__ __forceinline__ explicit OwnColumns(const SharedHalves& shared) : shared_(shared) {
#pragma unroll
    for (int i = 0; i < own_columns; ++i)
      if (place_of(i / packet) + i % packet >= shared.columns) known_ |= 1u << (even + i) | 1u << (odd + i);
  }

  // Where a packet's first column is.
  static __device__ __forceinline__ int place_of(int which) {
    return (which * static_cast<int>(blockDim.x) + anew(static_cast<int>(threadIdx.x))) * packet;
  }

  // What split() tells of a packet.
  struct Packet : Plainly {
    __device__ __forceinline__ Packet(OwnColumns& columns, int packet) : own(columns), which(packet) {}
    OwnColumns& own;
    const int which;
    __device__ __forceinline__ void count(const Counted& strong, const Counted& heavy) const {
      own.strong_[which] += as_bytes(strong);
      own.heavy_[which] += as_bytes(heavy);
    }
    __device__ __forceinline__ void add_rest(int i, float rest) const {
      atomicAdd(&own.shared_.found[place_of(which) + i].rest, __float2ull_ru(rest * units_of_rest));
    }
  };
  __device__ __forceinline__ Packet packet_of(int which) { return {*this, which}; }

  // Soon all is known that there is to know.
  __device__ __forceinline__ void look(int which, const Values& values, const ScaleOfLine& scale) {
    constexpr std::uint32_t all = (1u << own_columns) - 1;
    if ((known_ >> even & known_ >> odd & all) == all && scale.has_halves()) return;
#pragma unroll
    for (int i = 0; i < packet; ++i) {
      const int column = which * packet + i;
      const float value = values.at[i];
      if (value == 0) continue;
      know(there, column);
      if (!scale.has_halves()) know(lost, column);
      const Flags length = length_of(value);
      if (length == some_long_even) know(even, column);
      if (length == some_long_odd) know(odd, column);
      const float scaled = value * scale.up;
      const float missing = scaled - __half2float(__float2half_rn(scaled));
      if (missing != 0) short_ |= 1u << column;
      const float lower = missing * shared_.reach.up;
      if (lower != __half2float(__float2half_rn(lower)) || scaled == 0) short_ |= 1u << (own_columns + column);
    }
  }

  // What was counted, which begins anew: at the latest after most_counted rows.
  __device__ __forceinline__ void tell_counts() {
    for_each_column([&](int which, int i, ColumnFound& found) {
      const auto count = [&](std::uint32_t bytes) { return (bytes >> 8 * i & 255u) / one_counted; };
      const unsigned long long both = std::uint64_t{count(strong_[which])} << 32 | count(heavy_[which]);
      if (both != 0) atomicAdd(&found.counts, both);
    });
#pragma unroll
    for (int which = 0; which < own_packets; ++which) strong_[which] = heavy_[which] = 0;
  }
  __device__ __forceinline__ void tell_flags() const {
    for_each_column([&](int which, int i, ColumnFound& found) {
      if (const Flags flags = flags_of(which * packet + i)) atomicOr(&found.flags, flags);
    });
  }

  static constexpr int most_counted = 255 / 4;

 private:
  template <class Visit>
  __device__ __forceinline__ void for_each_column(Visit visit) const {
#pragma unroll
    for (int which = 0; which < own_packets; ++which)
#pragma unroll
      for (int i = 0; i < packet; ++i)
        if (const int column = place_of(which) + i; column < shared_.columns) visit(which, i, shared_.found[column]);
  }

  // A bit of the upper byte of a half that is 1, and not of one that is 0.
  static constexpr std::uint32_t one_counted = 4;
  static __device__ __forceinline__ std::uint32_t as_bytes(const Counted& halves) {
    const auto bits = [](const __half2& pair) { return reinterpret_cast<const std::uint32_t&>(pair); };
    return __byte_perm(bits(halves[0]), bits(halves[1]), 0x7531) & one_counted * 0x01010101u;
  }

  // Registers are few: a bit for each column, behind so many others.
  static constexpr int there = 0, lost = own_columns, even = 2 * own_columns, odd = 3 * own_columns;

  __device__ __forceinline__ void know(int what, int column) { known_ |= 1u << (what + column); }
  __device__ __forceinline__ Flags flags_of(int column) const {
    const auto flag = [&](std::uint32_t seen, int what, Flags which) {
      return (seen >> (what + column) & 1) != 0 ? which : 0;
    };
    return flag(known_, there, some_there) | flag(known_, lost, some_lost) | flag(known_, even, some_long_even) |
           flag(known_, odd, some_long_odd) | flag(short_, 0, some_low) | flag(short_, own_columns, some_rest);
  }

  const SharedHalves& shared_;
  std::uint32_t strong_[own_packets] = {}, heavy_[own_packets] = {};  // a byte for each column, in units of one_counted
  std::uint32_t known_ = 0;
  std::uint32_t short_ = 0;  // of digits: a lower half is not zero; a digit is lost
};

// What a block finds out about its rows. It is put together for several at a time, by a thread for each: one thread for one row would have
// all others wait.
constexpr int rows_told_at_once = 16;
template <int threads>
struct RowsFound {
  static constexpr int warps = threads / 32;
  std::uint32_t most[2][warps];  // a warp that is a row ahead overwrites nothing that others still read
  std::uint32_t largest[rows_told_at_once];
  FoundByAll found[rows_told_at_once][warps];

  static __device__ __forceinline__ int thread() { return anew(static_cast<int>(threadIdx.x)); }  // registers are few

  __device__ __forceinline__ std::uint32_t most_of(int which, std::uint32_t value) {
    return most_of_warps(most[which % 2], thread() % 32, thread() / 32, value);
  }
  __device__ __forceinline__ void add(int which, const Found& of_thread, std::uint32_t largest_of_row) {
    const FoundByAll of_warp = gather(of_thread);
    which %= rows_told_at_once;
    if (thread() % 32 == 0) found[which][thread() / 32] = of_warp;
    if (thread() == 0) largest[which] = largest_of_row;
  }
  // Of the last so many before row `next`.
  __device__ __forceinline__ void tell(const SharedHalves& shared, int next, int count) const {
    __syncthreads();
    if (thread() >= count) return;
    FoundByAll all{};
    for (const FoundByAll& of_warp : found[thread()]) all.add(of_warp);
    const ScaleOfLine scale(largest[thread()]);
    RowFacts facts = facts_from(all, largest[thread()], scale, shared.columns);
    facts.unscale = scale.down;
    shared.of_rows[next - (count - thread()) * static_cast<int>(gridDim.x)] = facts;
  }
};

template <int threads>
__global__ void __launch_bounds__(threads, shared_threads_of_processor / threads)
    split_for_two(const __grid_constant__ SharedHalves shared) {
  cuda::wait_for_kernel_before();
  cuda::let_kernel_after_begin();
  __shared__ RowsFound<threads> of_rows;
  OwnColumns columns(shared);

  const int rows = static_cast<int>(shared.matrix.rows);
  const auto bring = [&](int row, Values(&to)[own_packets]) {
    const float* const from = shared.matrix.from + min(row, rows - 1) * shared.matrix.stride;
#pragma unroll
    for (int i = 0; i < own_packets; ++i) to[i] = read<true>(from, OwnColumns::place_of(i), shared.columns);
  };
  Values next[own_packets];
  const int step = static_cast<int>(gridDim.x);
  bring(static_cast<int>(blockIdx.x), next);
  int done = 0;
  int row = static_cast<int>(blockIdx.x);
  for (; row < rows; row += step) {
    Values values[own_packets];
    std::uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < own_packets; ++i) {
      values[i] = next[i];
      look_for_largest(values[i], largest);
    }
    bring(row + step, next);
    largest = of_rows.most_of(done, largest);
    const ScaleOfLine scale(largest);
    auto* const halves = static_cast<__half*>(shared.halves) + std::int64_t{row} * 2 * shared.padded;
    Found found;
#pragma unroll
    for (int i = 0; i < own_packets; ++i) {
      const int column = OwnColumns::place_of(i);
      if (column >= shared.padded) continue;
      split(values[i], scale.up, shared.reach, halves + place_of_half(column), found, columns.packet_of(i));
      columns.look(i, values[i], scale);
    }
    of_rows.add(done, found, largest);
    if (++done % rows_told_at_once == 0) of_rows.tell(shared, row + step, rows_told_at_once);
    if (done % OwnColumns::most_counted == 0) columns.tell_counts();
  }
  of_rows.tell(shared, row, done % rows_told_at_once);
  columns.tell_counts();
  columns.tell_flags();
}

constexpr int columns_of_block = 256;

__device__ __forceinline__ int own_column() {
  return static_cast<int>(blockIdx.x) * columns_of_block + static_cast<int>(threadIdx.x);
}

__global__ void __launch_bounds__(columns_of_block) forget_columns(const __grid_constant__ SharedHalves shared) {
  cuda::wait_for_kernel_before();
  cuda::let_kernel_after_begin();
  if (own_column() < shared.columns) shared.found[own_column()] = {};
}

__global__ void __launch_bounds__(columns_of_block) tell_of_columns(const __grid_constant__ SharedHalves shared) {
  cuda::wait_for_kernel_before();
  cuda::let_kernel_after_begin();
  const int column = own_column();
  if (column >= shared.columns) return;
  const ColumnFound found = shared.found[column];
  RowFacts facts{unscale_of_lying, -infinity, 0, whole_share, whole_share};
  if ((found.flags & some_lost) != 0) {
    facts = {unscale_of_lying, infinity, 0, 0, 0};
  } else if ((found.flags & some_there) != 0) {
    const auto share = [&](std::uint64_t count) {
      return static_cast<std::uint16_t>(count * whole_share / static_cast<std::uint64_t>(shared.matrix.rows));
    };
    facts = {unscale_of_lying, __ull2float_ru(found.rest) * (doubt_of_rest / units_of_rest),
             short_of_digits_by(found.flags), share(found.counts >> 32), share(found.counts & 0xffffffffu)};
  }
  shared.of_columns[column] = facts;
}

template <int threads>
void launch(const SharedHalves& shared, cudaStream_t stream) {
  const std::int64_t blocks = shared_blocks(shared.columns, cuda::processors());
  cuda::launch<split_for_two<threads>>(cuda::grid_of(min(blocks, shared.matrix.rows), 1), threads, stream, shared);
}

}  // namespace

const char* make_shared_halves(const SharedHalves& shared, void* stream) {
  auto* const to = static_cast<cudaStream_t>(stream);
  const auto each_column = cuda::grid_of(ceiling(shared.columns, columns_of_block), 1);
  cuda::launch<forget_columns>(each_column, columns_of_block, to, shared);
  switch (shared_threads(shared.columns)) {
    case 128:
      launch<128>(shared, to);
      break;
    case 256:
      launch<256>(shared, to);
      break;
    default:
      launch<most_shared_threads>(shared, to);
  }
  cuda::launch<tell_of_columns>(each_column, columns_of_block, to, shared);
  return cuda::launch_error();
}

}  // namespace tailor::hopper
