// Strips of float32: which few rows get them, and how they are cut.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "kernels/hopper/few_rows_plan.h"
#include "plan_reasons.h"

namespace tailor::hopper {
namespace {

std::string few_rows_reason(Shape shape, Wanted wanted = Wanted::where_faster) {
  alignas(16) static float memory[4];
  shape.processors = 132;
  shape.element_bytes = 4;
  const char* why = refuses_few_rows(shape, {memory, shape.columns, shape.inner, shape.inner, 4}, wanted);
  return why != nullptr ? why : "";
}

TEST(HopperPlan, FewRows) {
  for (const int rows : {2, 16, 64, 128, 256}) EXPECT_EQ(few_rows_reason({rows, 8192, 8192}), "") << rows;
  EXPECT_EQ(few_rows_reason({1, 8192, 8192}), "it has too few columns for the processors")
      << "cuBLAS has a kernel for it";
  EXPECT_EQ(few_rows_reason({1024, 8192, 8192}), "it has so many rows that halves are faster");
  EXPECT_EQ(few_rows_reason({16, 128, 512}), "it has too few columns for the processors");
  EXPECT_EQ(few_rows_reason({16, 8192, 252}), "its products are so short that thirds gain nothing");
  EXPECT_EQ(few_rows_reason({16, 8192, 8190}), "the rows of a matrix are not aligned to 16 bytes");
}

TEST(HopperPlan, FewRowsWhereWanted) {
  EXPECT_EQ(few_rows_reason({1024, 128, 4}, Wanted::few_rows), "");
  EXPECT_NE(few_rows_reason({16, 8192, 8190}, Wanted::few_rows), "") << "not even then";
  EXPECT_EQ(few_rows_reason({4097, 128, 256}, Wanted::few_rows), "its rows are many");
  EXPECT_EQ(few_rows_reason({16, 8192, 8192}, Wanted::always), "TAILOR_HOPPER wants tiles of many rows");
  EXPECT_EQ(few_rows_reason({16, 8192, 8192}, Wanted::never), "TAILOR_HOPPER=never");
  EXPECT_EQ(few_rows_reason({16, 8192, 0}, Wanted::few_rows), "its sums are empty");
}

// What halves need not make, counts for them.
TEST(HopperPlan, FewRowsOfSettledWeights) {
  for (const int rows : {16, 64, 128, 256}) {
    Shape shape{rows, 8192, 8192};
    EXPECT_EQ(few_rows_reason(shape), "") << rows;
    shape.weight_is_settled = true;
    EXPECT_EQ(few_rows_reason(shape), "its weight is settled, and its halves are faster") << rows;
    EXPECT_EQ(halves_reason(shape), "") << rows;
  }
}

bool is_cut_into_strips(Shape shape, Wanted wanted = Wanted::where_faster) {
  shape.processors = 132;
  shape.element_bytes = 4;
  return takes_strips_of_halves(shape, wanted);
}

// Where tiles of many rows leave most processors idle.
TEST(HopperPlan, StripsOfHalves) {
  Shape settled{128, 8192, 8192};
  settled.weight_is_settled = true;
  EXPECT_TRUE(is_cut_into_strips(settled)) << "101 µs measured, 158 in tiles of 128 columns, 242 in those of 256";
  EXPECT_FALSE(is_cut_into_strips(settled, Wanted::always));
  settled.rows = 256;
  EXPECT_FALSE(is_cut_into_strips(settled)) << "152 µs measured in tiles of 128 columns, 161 in strips";
  settled.rows = 1024;
  EXPECT_FALSE(is_cut_into_strips(settled)) << "553 µs measured in tiles, 564 in strips";
  EXPECT_TRUE(is_cut_into_strips({2048, 128, 8192})) << "eight tiles for all processors";
  EXPECT_FALSE(is_cut_into_strips({2049, 128, 8192})) << "nobody has measured it";
  EXPECT_TRUE(is_cut_into_strips({128, 512, 1024})) << "a weight that takes no time to split";
  EXPECT_TRUE(is_cut_into_strips({4096, 8192, 8192}, Wanted::strips));
  EXPECT_EQ(halves_reason({1, 16, 1}, Wanted::strips), "");
  EXPECT_EQ(few_rows_reason({16, 8192, 8192}, Wanted::strips), "TAILOR_HOPPER wants halves");
}

TEST(HopperPlan, StripsOfHalvesAreCutToFillTheProcessors) {
  const auto plan = [](std::int64_t rows, std::int64_t columns, std::int64_t inner) {
    Shape shape{rows, columns, inner, 4, 0, 132};
    shape.weight_is_settled = true;
    return plan_few_halves(shape);
  };
  EXPECT_EQ(plan(64, 1024, 8192).parts, 8);
  EXPECT_EQ(plan(64, 16384, 4096).parts, 1);
  for (const auto& [rows, tile] : {std::pair{1, 32}, {32, 32}, {33, 64}, {64, 64}, {65, 128}, {256, 256}})
    EXPECT_EQ(plan(rows, 8192, 8192).tile_rows, tile) << rows;
  EXPECT_EQ(plan(256, 4096, 4096).tile_rows, 128) << "two tiles, so that each processor has one";
}

// A block begins anew for each of them.
TEST(HopperPlan, StripsThatFollowOneAnother) {
  EXPECT_LE(plan_few_halves({368, 6336, 4928, 4, 0, 132}).parts, 3) << "of six 319 µs measured, 245 of three";
  EXPECT_FALSE(is_cut_into_strips({1824, 2496, 1280})) << "138 µs measured, 92 in tiles";
}

// Each processor has a strip, or a part of one; a part has a step at least.
TEST(HopperPlan, FewRowsAreCutToFillTheProcessors) {
  const auto plan = [](std::int64_t rows, std::int64_t columns, std::int64_t inner) {
    return plan_few_rows({rows, columns, inner, 4, 0, 132});
  };
  EXPECT_EQ(plan(16, 8192, 8192).parts, 2);
  EXPECT_EQ(plan(16, 1024, 8192).parts, 8);
  EXPECT_EQ(plan(16, 16384, 8192).parts, 1);
  EXPECT_EQ(plan(256, 8192, 8192).parts, 1) << "two tiles of rows";
  EXPECT_EQ(plan(16, 32000, 4096).parts, 1) << "two rounds";
  EXPECT_EQ(plan(16, 4096, 16384).parts, 3) << "of four parts, not all strips would fit at a time";
  for (const auto& [rows, tile] : {std::pair{1, 32}, {32, 32}, {33, 64}, {64, 64}, {65, 128}, {300, 128}})
    EXPECT_EQ(plan(rows, 8192, 8192).tile_rows, tile) << rows;
}

}  // namespace
}  // namespace tailor::hopper
