// Who makes halves of a matrix for two products, and where they lie.
#include "kernels/hopper/shared_halves.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/hopper/halves_plan.h"

namespace tailor::hopper {
namespace {

TEST(SharedHalves, WhoShares) {
  const auto refuses = [](std::int64_t rows, std::int64_t columns, std::int64_t inner,
                          Wanted wanted = Wanted::where_faster) {
    Shape by_rows{rows, inner, columns, 4};
    Shape transposed{columns, inner, rows, 4};
    by_rows.processors = transposed.processors = 132;
    const char* why = refuses_to_share(by_rows, transposed, wanted);
    return std::string(why != nullptr ? why : "");
  };
  EXPECT_EQ(refuses(32768, 4096, 1024), "");
  EXPECT_EQ(refuses(4224, 4096, 4096), "") << "16 rows for each of 264 blocks";
  EXPECT_EQ(refuses(4223, 4096, 4096), "its blocks have so few rows each that they wait");
  EXPECT_EQ(refuses(4224, 2048, 2048), "its blocks have so few rows each that they wait") << "528 smaller blocks";
  EXPECT_EQ(refuses(16384, 4097, 4096), "its rows are longer than a block's threads hold");
  EXPECT_EQ(refuses((std::int64_t{1} << 22) + 1, 1024, 1024), "it has more rows than are counted");
  EXPECT_EQ(refuses(65536, 64, 8192), "strips do not read what is shared");
  EXPECT_EQ(refuses(100, 64, 64, Wanted::always), "") << "tests are to see it";
  EXPECT_EQ(refuses(100, 64, 64, Wanted::strips), "strips do not read what is shared");
  EXPECT_EQ(refuses(256, 1024, 768, Wanted::few_rows), "strips do not read what is shared") << "nor what lies as it is";
}

TEST(SharedHalves, BlocksHoldARow) {
  for (const int columns : {1, 64, 1024, 1025, 2048, 2049, shared_columns})
    EXPECT_GE(shared_threads(columns) * shared_columns_of_thread, columns) << columns;
  EXPECT_EQ(shared_threads(1024), 128);
  EXPECT_EQ(shared_threads(1025), 256);
  EXPECT_EQ(shared_threads(shared_columns), most_shared_threads);
  EXPECT_EQ(shared_blocks(1024, 132), 132 * 8);
  EXPECT_EQ(shared_blocks(shared_columns, 132), 132 * 2);
}

// One behind the other, each at a multiple of 256 bytes.
TEST(SharedHalves, LieApart) {
  SharedHalves shared({nullptr, 7, 100}, 100);
  EXPECT_EQ(shared.padded, 128);
  const std::int64_t bytes = shared.lie_at(nullptr);
  EXPECT_EQ(shared.halves, nullptr);
  EXPECT_EQ(shared.found, nullptr);
  alignas(256) static char place[1 << 14];
  EXPECT_EQ(shared.lie_at(place), bytes);
  const char* next = place;
  const auto follows = [&](const void* here, std::int64_t size) {
    EXPECT_EQ(here, next);
    next += ceiling(size, 256) * 256;
  };
  follows(shared.halves, 7 * 128 * 4);
  follows(shared.of_rows, 7 * sizeof(RowFacts));
  follows(shared.of_columns, 100 * sizeof(RowFacts));
  follows(shared.found, 100 * sizeof(ColumnFound));
  EXPECT_EQ(next, place + bytes);
}

}  // namespace
}  // namespace tailor::hopper
