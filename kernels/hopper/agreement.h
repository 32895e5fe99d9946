// Where the blocks that share columns tell each other what batch statistics are made of.
#pragma once
#include <cstdint>

namespace tailor::hopper {

// The mean of some rows of a column, and the sum of the squared distances from it.
using Moment = float2;

// In a call's workspace: moments, or `unknown`.
struct Agreement {
  // Two numbers that no arithmetic makes: the NaN of a GPU has another sign.
  static constexpr std::uint64_t unknown = ~std::uint64_t{0};

  std::uint64_t* of_tiles =
      nullptr;  // [columns][chunks of 128 rows]: who merges a column waits for few lines of the cache
  std::uint64_t* of_all = nullptr;  // [columns], behind those
  int column_tiles_at_once = 0;     // at the same time
  int share_bits = 0;               // of half a tile's columns, 2^share_bits are merged by each block

  // Lays it out from `start`; its size in bytes.
  std::int64_t place(void* start, std::int64_t chunks, std::int64_t columns) {
    of_tiles = static_cast<std::uint64_t*>(start);
    of_all = of_tiles + chunks * columns;
    return (chunks + 1) * columns * static_cast<std::int64_t>(sizeof(std::uint64_t));
  }
};

}  // namespace tailor::hopper
