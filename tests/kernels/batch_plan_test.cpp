#include "kernels/hopper/batch_plan.h"

#include <gtest/gtest.h>

#include <string>

namespace tailor::hopper {
namespace {

TEST(HopperPlan, BlocksAgreeOnBatchStatistics) {
  const auto agrees = [](Shape shape, Wanted wanted = Wanted::where_faster) -> std::string {
    shape.batch_statistics = true;
    shape.processors = 2 * shape.clusters;
    const char* why = refuses_to_agree(shape, wanted);
    return why != nullptr ? why : "";
  };
  Shape shape{1024, 8192, 8192};
  shape.clusters = 66;
  EXPECT_EQ(agrees(shape), "");
  const AgreementPlan plan = plan_agreement(shape);
  EXPECT_EQ(plan.row_tiles, 4);
  EXPECT_EQ(plan.column_tiles, 16);
  EXPECT_EQ(plan.rounds, 2);
  EXPECT_EQ(plan.share_bits, 4) << "of 128 columns 16 for each of 8 blocks";
  EXPECT_EQ(agrees(shape, Wanted::always), "");
  EXPECT_EQ(agrees(shape, Wanted::gather), "TAILOR_HOPPER=gather");
  EXPECT_EQ(agrees(shape, Wanted::never), "TAILOR_HOPPER=never");
  shape.element_bytes = 4;
  EXPECT_EQ(agrees(shape, Wanted::always), "a tail with batch statistics comes after the whole linear");
  const char* const rows = "not all tiles of a column fit onto the processors at a time";
  for (const std::int64_t fit : {2, 255, 256, 257, 16384, 16896}) {
    EXPECT_EQ(agrees({.rows = fit, .columns = 4096, .inner = 4096, .clusters = 66}, Wanted::always), "") << fit;
    const AgreementPlan of = plan_agreement({.rows = fit, .columns = 4096, .inner = 4096, .clusters = 66});
    EXPECT_LE(of.row_tiles * of.column_tiles, 66) << fit;
    EXPECT_GE(2 * of.row_tiles << of.share_bits, 128) << fit;
    EXPECT_GE(of.column_tiles * of.rounds, 16) << fit;
  }
  const Shape nothing{.rows = 0, .columns = 64, .inner = 64, .clusters = 66};
  EXPECT_EQ(plan_agreement(nothing).row_tiles, 1) << "nothing is divided by no rows";
  EXPECT_EQ(agrees({.rows = 16897, .columns = 4096, .inner = 4096, .clusters = 66}, Wanted::always), rows);
  EXPECT_EQ(agrees({.rows = 2, .columns = 64, .inner = 64}, Wanted::always), rows) << "the driver did not say";
  for (const Shape& tiny :
       {Shape{.rows = 2, .columns = 64, .inner = 64}, Shape{.rows = 64, .columns = 1024, .inner = 64}})
    EXPECT_NE(agrees({.rows = tiny.rows, .columns = tiny.columns, .inner = tiny.inner, .clusters = 66}), "");
  EXPECT_EQ(agrees({.rows = 8192, .columns = 4096, .inner = 1024, .clusters = 66}),
            "to gather its statistics, and then to compute the tail, is faster")
      << "183 µs measured, 162 apart";
}

constexpr double h100 = 3.35e6;
constexpr double h200 = 4.9e6;

bool agrees(Shape shape, double memory_rate) {
  shape.batch_statistics = true;
  shape.clusters = 66;
  shape.processors = 132;
  shape.memory_rate = memory_rate;
  return refuses_to_agree(shape, Wanted::where_faster) == nullptr;
}

// Of a batch norm by itself, and of one with a swish behind it.
TEST(HopperPlan, BlocksAgreeWhereProductsAreLong) {
  EXPECT_TRUE(agrees({1024, 8192, 8192}, h200)) << "189 and 191 µs measured, 193 and 193 apart";
  EXPECT_TRUE(agrees({8192, 4096, 4096}, h200)) << "386 and 392 µs, 399 and 404 apart";
  EXPECT_TRUE(agrees({2048, 4096, 4096}, h200)) << "107 and 111 µs, 114 and 113 apart";
  EXPECT_TRUE(agrees({4096, 4096, 3072}, h200)) << "156 and 160 µs, 164 and 164 apart";
  EXPECT_TRUE(agrees({2048, 2048, 2048}, h200)) << "42 and 44 µs, 45 and 44 apart: a block has one tile";
  EXPECT_FALSE(agrees({4096, 4096, 2048}, h200)) << "124 and 131 µs, 124 and 124 apart";
  EXPECT_FALSE(agrees({8192, 4096, 2048}, h200)) << "244 and 257 µs, 231 and 231 apart";
  EXPECT_FALSE(agrees({4096, 4096, 1024}, h200)) << "94 and 102 µs, 84 and 83 apart";
}

TEST(HopperPlan, BlocksDoNotAgreeWhereMemoryIsSlow) {
  EXPECT_TRUE(agrees({16384, 4096, 4096}, h200)) << "812 µs measured, 825 apart";
  EXPECT_FALSE(agrees({16384, 4096, 4096}, h100)) << "902 µs measured, 855 apart";
  EXPECT_TRUE(agrees({16384, 4096, 8192}, h200)) << "1590 µs measured, 1602 apart";
  EXPECT_FALSE(agrees({16384, 4096, 8192}, h100)) << "1705 µs measured, 1634 apart";
  EXPECT_TRUE(agrees({8192, 4096, 4096}, h100)) << "398 µs measured, 423 apart";
  EXPECT_TRUE(agrees({8192, 8192, 8192}, h100)) << "1590 µs measured, 1630 apart";
  EXPECT_TRUE(agrees({1024, 8192, 8192}, h100));
  EXPECT_TRUE(agrees({16384, 4096, 4096}, 0)) << "the driver did not say";
}

}  // namespace
}  // namespace tailor::hopper
