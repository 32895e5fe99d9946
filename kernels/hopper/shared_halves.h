// The halves of a matrix that two products read: one as it lies, the other transposed, as a backward's products read the gradient of the
// linear's result. They are made once, by rows, each with a power of two of its own. For the second product those rows are lines of the
// sum: the other matrix's lines are multiplied by what these were divided by (`lines` in halves.h), and nothing need be scaled by columns,
// or moved. Nothing here is CUDA or torch.
#pragma once
#include "halves.h"

namespace tailor::hopper {

// What is found out about a column, by all blocks together.
struct alignas(16) ColumnFound {
  unsigned long long rest = 0;    // in units of 2^-40, rounded up
  unsigned long long counts = 0;  // how many numbers are strong, in units of 2^32, and heavy
  std::uint32_t flags = 0;
};

// A thread has eight columns of each row of its block. Blocks of 1024 threads, one on each processor, were slower than two kernels.
constexpr int shared_columns_of_thread = 8;
constexpr int most_shared_threads = 512;
constexpr int shared_columns = most_shared_threads * shared_columns_of_thread;
constexpr int shared_threads_of_processor = 1024;
constexpr std::int64_t shared_rows = std::int64_t{1} << 22;  // that are counted

constexpr int shared_threads(std::int64_t columns) {
  int threads = 128;
  while (threads < most_shared_threads && threads * shared_columns_of_thread < columns) threads *= 2;
  return threads;
}
constexpr std::int64_t shared_blocks(std::int64_t columns, int processors) {
  return std::int64_t{processors} * (shared_threads_of_processor / shared_threads(columns));
}

// The power of two that all columns have: it keeps the other matrix's numbers, multiplied as above, near what the products come to.
constexpr float unscale_of_lying = 1.0f / (1 << 14);

struct SharedHalves {
  FloatMatrix matrix;
  int columns = 0;
  int padded = 0;  // to whole steps
  Reach reach = far_reach;
  void* halves = nullptr;
  RowFacts* of_rows = nullptr;
  RowFacts* of_columns = nullptr;
  ColumnFound* found = nullptr;

  SharedHalves(const FloatMatrix& given, int of_row) : matrix(given), columns(of_row) {
    padded = static_cast<int>(ceiling(columns, halves_step) * halves_step);
  }
  // Says where all of it lies, from `place` on; how many bytes that takes.
  std::int64_t lie_at(void* place) {
    auto* next = static_cast<char*>(place);
    std::int64_t bytes = 0;
    const auto take = [&](std::int64_t count, std::int64_t size) {
      void* const here = next == nullptr ? nullptr : next + bytes;
      bytes += whole_places(count * size);
      return here;
    };
    constexpr std::int64_t of_number = 4;  // two halves
    halves = take(matrix.rows * padded, of_number);
    of_rows = static_cast<RowFacts*>(take(matrix.rows, sizeof(RowFacts)));
    of_columns = static_cast<RowFacts*>(take(columns, sizeof(RowFacts)));
    found = static_cast<ColumnFound*>(take(columns, sizeof(ColumnFound)));
    return bytes;
  }
};

// On `stream` (a cudaStream_t). Null, or what went wrong.
const char* make_shared_halves(const SharedHalves& shared, void* stream);

}  // namespace tailor::hopper
