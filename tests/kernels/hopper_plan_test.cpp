#include "kernels/hopper/batch_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "kernels/hopper/few_rows_plan.h"
#include "plan_reasons.h"

namespace tailor::hopper {
namespace {

TEST(HopperPlan, KnowsItsSwitchesWords) {
  EXPECT_EQ(wanted_by(""), Wanted::where_faster);
  EXPECT_EQ(wanted_by("always"), Wanted::always);
  EXPECT_EQ(wanted_by("always_192"), Wanted::always_192);
  EXPECT_EQ(wanted_by("always_128"), Wanted::always_128);
  EXPECT_EQ(wanted_by("always_narrow"), Wanted::always_narrow);
  EXPECT_EQ(wanted_by("gather"), Wanted::gather);
  EXPECT_EQ(wanted_by("few_rows"), Wanted::few_rows);
  EXPECT_EQ(wanted_by("strips"), Wanted::strips);
  EXPECT_EQ(wanted_by("never"), Wanted::never);
  for (const char* other : {"banana", "Always", "0", "never "}) EXPECT_EQ(wanted_by(other), std::nullopt) << other;
}

TEST(HopperPlan, TakesWhatFillsTheProcessors) {
  EXPECT_EQ(reason({1024, 8192, 8192}), "");
  EXPECT_EQ(reason({16384, 4096, 4096}), "");
  EXPECT_EQ(reason({32768, 4096, 1024}), "");
  EXPECT_EQ(reason({1024, 8192, 8192, 4}), "");
  EXPECT_EQ(reason({512, 8192, 8192}), "") << "128 tiles, a round that is nearly full";
}

TEST(HopperPlan, LeavesWhatWouldIdle) {
  EXPECT_EQ(reason({600, 1024, 4096}), few) << "19 µs measured apart, 21 in strips, 26 in tiles";
  EXPECT_EQ(reason({1152, 4096, 8192}), few) << "144 tiles, twelve of them in a round of their own";
}

// All tiles of a round take the same time, however few there are.
TEST(HopperPlan, TilesAreCutToFillTheProcessors) {
  const auto columns = [](Shape shape, Wanted wanted = Wanted::where_faster) {
    shape.processors = 132;
    return plan_tiles(shape, wanted).columns;
  };
  EXPECT_EQ(columns({16384, 4096, 4096}), 256);
  EXPECT_EQ(columns({1024, 8192, 8192}), 256);
  EXPECT_EQ(columns({3272, 2752, 4032}), 192) << "106 µs measured, 134 by 256, 121 by 128, 113 apart";
  EXPECT_EQ(columns({2048, 1024, 8192}), 128) << "49 µs measured, 83 by 256, 65 by 192, 52 apart";
  EXPECT_EQ(columns({1024, 2048, 2048}), 128) << "18 µs measured, 28 by 256, 23 by 192, 22 apart";
  EXPECT_EQ(columns({2120, 1280, 7104, 4}), 192) << "114 µs measured, 143 by 256, 155 by 128, 147 apart";
  for (const Shape& shape :
       {Shape{3272, 2752, 4032}, Shape{2048, 1024, 8192}, Shape{1024, 2048, 2048}, Shape{2120, 1280, 7104, 4}})
    EXPECT_EQ(reason(shape), "") << shape.rows << " x " << shape.columns;
  EXPECT_EQ(columns({1024, 8192, 8192}, Wanted::always_192), 192);
  EXPECT_EQ(columns({1024, 8192, 8192}, Wanted::always_128), 128);
  EXPECT_EQ(columns({1024, 2048, 2048}, Wanted::always), 256);
}

// Few tiles that are left for a last round are made in halves, one for each cluster.
TEST(HopperPlan, TheLastRoundMayBeNarrow) {
  const auto narrow = [](Shape shape, Wanted wanted = Wanted::where_faster) {
    shape.processors = 132;
    const TilePlan plan = plan_tiles(shape, wanted);
    EXPECT_TRUE(!plan.narrow_last || plan.columns == 256);
    return plan.narrow_last;
  };
  EXPECT_TRUE(narrow({4808, 5568, 1792})) << "142 µs measured, 143 by 192, 148 by 256, 150 by 128";
  EXPECT_TRUE(narrow({6664, 2752, 1920})) << "110 µs measured, 115 by 256 and by 128, 118 by 192";
  EXPECT_TRUE(narrow({9448, 1984, 1728, 2, 64})) << "108 µs measured, 110 by 128, 122 by 192, 124 in turns";
  EXPECT_FALSE(narrow({728, 7872, 6784})) << "120 µs measured, 114 by 192: two rounds for one and a half of 256";
  EXPECT_FALSE(narrow({752, 2368, 2944})) << "26 µs measured, 23 by 128: there is no other round";
  EXPECT_FALSE(narrow({1024, 8192, 8192})) << "the second of two rounds is nearly full";
  EXPECT_FALSE(narrow({4808, 5568, 1792, 4})) << "TF32 has no such kernel";
  EXPECT_FALSE(narrow({4808, 5568, 1792}, Wanted::always)) << "tests are to see both";
  EXPECT_TRUE(narrow({4808, 5568, 1792}, Wanted::always_narrow));
  EXPECT_TRUE(narrow({752, 2368, 2944}, Wanted::always_narrow));
  EXPECT_FALSE(narrow({752, 2368, 2944, 4}, Wanted::always_narrow));
  EXPECT_FALSE(narrow({16896, 256, 4096}, Wanted::always_narrow)) << "a full round";
  EXPECT_FALSE(narrow({256 * 100, 256, 4096}, Wanted::always_narrow)) << "34 for 66 processors";
  EXPECT_TRUE(narrow({256 * 99, 256, 4096}, Wanted::always_narrow)) << "33";
  EXPECT_FALSE(narrow({0, 256, 4096}, Wanted::always_narrow));
}
TEST(HopperPlan, TheLastRoundOfHalvesMayBeNarrow) {
  const auto plan = [](Shape shape, Wanted wanted = Wanted::where_faster) {
    shape.processors = 132;
    shape.element_bytes = 4;
    return plan_tiles_of_halves(shape, wanted);
  };
  EXPECT_TRUE(plan({32768, 4096, 1024}).narrow_last) << "1.117 of three products measured, 1.125 by 256";
  EXPECT_TRUE(plan({9448, 1984, 1728}).narrow_last) << "374 µs measured, 388 by 128";
  EXPECT_FALSE(plan({16384, 4096, 4096}).narrow_last) << "34 tiles for 66 clusters";
  EXPECT_FALSE(plan({1824, 2496, 1280}).narrow_last) << "101 µs measured by 128, 105 so";
  EXPECT_FALSE(plan({856, 1536, 1536}).narrow_last) << "51 µs measured by 128, 54 so";
  for (const Wanted wanted : {Wanted::always, Wanted::always_192, Wanted::always_128, Wanted::gather})
    EXPECT_FALSE(plan({32768, 4096, 1024}, wanted).narrow_last);
  EXPECT_TRUE(plan({856, 1536, 1536}, Wanted::always_narrow).narrow_last);
  Shape of_gradients{32768, 4096, 1024};
  of_gradients.of_gradients = true;
  EXPECT_FALSE(plan(of_gradients, Wanted::always_narrow).narrow_last) << "all their tiles are narrow";
}

// Where a short K is multiplied sooner than the result is written, torch's linear waits for that too.
TEST(HopperPlan, ShortProducts) {
  EXPECT_EQ(reason({32768, 4096, 128}), "") << "165 µs measured, 242 apart";
  EXPECT_EQ(reason({4096, 4096, 64}), "") << "27 µs measured, 31 apart";
}

TEST(HopperPlan, ALastTileMakesARound) {
  constexpr auto rows = std::int64_t{132} * 128;
  EXPECT_EQ(reason({rows, 256, 8192}), "");
  EXPECT_EQ(reason({rows + 1, 256, 8192}), few);
}

// A cluster has two tiles of rows, whether there are two or not.
TEST(HopperPlan, TilesComeInPairs) {
  EXPECT_EQ(reason({256, 16896, 8192}), "") << "66 pairs";
  for (const Shape& odd :
       {Shape{128, 32768, 8192}, Shape{1, 33792, 8192}, Shape{384, 11264, 4096}, Shape{1152, 3584, 8192}})
    EXPECT_EQ(reason(odd), few) << odd.rows << " x " << odd.columns;
}

TEST(HopperPlan, ShortFloat32) {
  EXPECT_EQ(reason({32768, 4096, 127, 4}), "its float32 products are so short that TF32 gains nothing");
  EXPECT_EQ(reason({32768, 4096, 127, 2}), "");
  EXPECT_EQ(reason({32768, 4096, 128, 4}), "");
}

TEST(HopperPlan, FewTilesOfFloat32) {
  EXPECT_EQ(reason({128, 512, 1024, 4}), few) << "18.9 µs measured, torch's linear 11.4";
  EXPECT_EQ(reason({128, 1024, 512, 4, 32}), few) << "16.4 µs measured, torch's linear 10.0";
  EXPECT_EQ(reason({256, 8192, 8192, 4}), "") << "102 µs measured, torch's linear 112";
}

TEST(HopperPlan, WidthsOfGroups) {
  for (const int width : {16, 32, 64}) EXPECT_EQ(reason({1024, 8192, 8192, 2, width}), "") << width;
  for (const int width : {1, 8, 24, 128, 256, 8192})
    EXPECT_EQ(reason({1024, 8192, 8192, 2, width}), "its groups are not 16, 32 or 64 columns wide") << width;
}

TEST(HopperPlan, Turns) {
  const auto turns = [](Shape shape, Wanted wanted = Wanted::where_faster) {
    shape.processors = 132;
    return plan_tiles(shape, wanted).in_turns;
  };
  EXPECT_TRUE(turns({32768, 4096, 1024, 2, 64})) << "416 µs measured, of 192 columns 475";
  EXPECT_TRUE(turns({32768, 4096, 1024, 4, 64}));
  EXPECT_FALSE(turns({32768, 4096, 1024})) << "without a group norm the tail is short";
  EXPECT_FALSE(turns({1024, 8192, 8192, 2, 32})) << "two rounds, and the second of few tiles";
  EXPECT_FALSE(turns({1648, 1984, 1216, 2, 32})) << "a block has one tile: 30 µs measured, of 128 columns 26";
  EXPECT_TRUE(turns({9560, 3328, 1536, 2, 64})) << "143 µs measured, of 128 columns 168";
  EXPECT_FALSE(turns({16384, 4096, 4096, 2, 64})) << "768 µs measured, of 256 columns 733";
  EXPECT_FALSE(turns({728, 7872, 6784, 2, 32})) << "126 µs measured, of 192 columns 118";
  EXPECT_FALSE(turns({4096, 4096, 4096, 2, 32})) << "by estimate: rounds that are not full";
  EXPECT_TRUE(turns({1024, 4096, 1024, 4, 64}, Wanted::always));
  EXPECT_FALSE(turns({1024, 4096, 4096, 4, 64}, Wanted::always)) << "tests are to see both";
}

TEST(HopperPlan, Matrices) {
  alignas(16) static char memory[64];
  const auto why = [](Matrix matrix) {
    const char* reason = refuses_matrix(matrix);
    return std::string(reason != nullptr ? reason : "");
  };
  EXPECT_EQ(why({memory, 4, 8, 8, 2}), "");
  EXPECT_EQ(why({memory, 4, 8, 16, 2}), "") << "part of wider rows";
  EXPECT_EQ(why({memory, 4, 0, 8, 2}), "a matrix has no columns");
  EXPECT_EQ(why({memory, 4, 8, 0, 2}), "the rows of a matrix overlap") << "an expanded tensor";
  EXPECT_EQ(why({memory, 4, 16, 8, 2}), "the rows of a matrix overlap");
  EXPECT_EQ(why({memory + 2, 4, 8, 8, 2}), "a matrix is not aligned to 16 bytes");
  EXPECT_EQ(why({memory, 4, 8, 9, 2}), "the rows of a matrix are not aligned to 16 bytes");
  EXPECT_EQ(why({memory, 4, 8, std::int64_t{1} << 39, 2}), "the rows of a matrix are too far apart");
}

TEST(HopperPlan, WhatIsWanted) {
  EXPECT_EQ(reason({1, 8, 8}, Wanted::always), "");
  EXPECT_EQ(reason({1024, 8192, 8192}, Wanted::never), "TAILOR_HOPPER=never");
  EXPECT_NE(reason({1, 8, 8, 2, 8}, Wanted::always), "") << "not even then";
  EXPECT_NE(reason({std::int64_t{1} << 30, 8, 8}, Wanted::always), "");
}

// Few rows are not multiplied in tiles, and nothing else keeps the linear's result.
TEST(HopperPlan, HalvesThatKeepTheLinearsResult) {
  Shape shape{1024, 8192, 8192};
  shape.keeps_result = true;
  EXPECT_EQ(halves_reason(shape), "");
  EXPECT_EQ(halves_reason(shape, Wanted::strips), strips_keep_nothing);
  EXPECT_STREQ(refuses_few_rows(shape, {nullptr, 8192, 8192, 8192, 4}, Wanted::few_rows), strips_keep_nothing);
  shape.rows = 511;
  EXPECT_NE(halves_reason(shape), "");
  EXPECT_EQ(halves_reason(shape, Wanted::always), "");
  shape.keeps_result = false;
  EXPECT_EQ(halves_reason(shape), "");
}

TEST(HopperPlan, BatchStatistics) {
  Shape shape{1024, 8192, 8192};
  shape.batch_statistics = true;
  const auto gathering = [](Shape of, Wanted wanted = Wanted::where_faster) -> std::string {
    of.processors = 132;
    const char* why = refuses_to_gather(of, wanted);
    return why != nullptr ? why : "";
  };
  const char* const after = "a tail with batch statistics comes after the whole linear";
  EXPECT_STREQ(refuses_tail(shape), after);
  EXPECT_EQ(halves_reason(shape), after);
  EXPECT_STREQ(refuses_few_rows(shape, {nullptr, 8192, 8192, 8192, 4}, Wanted::where_faster), after);
  EXPECT_EQ(refuses_tail({1024, 8192, 8192}), nullptr);
  EXPECT_EQ(gathering(shape), "") << "but the linear, and what it takes to gather them";
  shape.rows = 16384;
  shape.columns = shape.inner = 4096;
  EXPECT_EQ(gathering(shape), "") << "805 µs measured, 838 apart";
  EXPECT_EQ(gathering(shape, Wanted::never), "TAILOR_HOPPER=never");
  shape.rows = 256;
  EXPECT_EQ(gathering(shape), few);
  EXPECT_EQ(gathering(shape, Wanted::gather), "");
}

// Ratios to cuBLAS's linear on an H100, in one run.
TEST(HopperPlan, TilesThatReadLessWhereMemoryIsSlow) {
  const auto plan = [](std::int64_t rows, std::int64_t columns, std::int64_t inner, int bytes, std::int64_t width,
                       double memory_rate) {
    const Shape shape{rows, columns, inner, bytes, width, 132, memory_rate};
    return plan_tiles(shape, Wanted::where_faster);
  };
  constexpr double h100 = 3.35e6;
  constexpr double h200 = 4.9e6;
  EXPECT_FALSE(plan(11912, 6656, 5888, 2, 64, h200).in_turns) << "1288 µs on an H200, in turns 1353";
  EXPECT_FALSE(plan(11912, 6656, 5888, 2, 64, h100).in_turns) << "1.04";
  EXPECT_EQ(plan(11912, 6656, 5888, 2, 64, h100).columns, 256) << "of 192 columns 1.06, of 128 1.36";
  EXPECT_FALSE(plan(11912, 6656, 5888, 4, 64, h100).in_turns) << "0.94, in turns 1.22";
  EXPECT_EQ(plan(7440, 1920, 6656, 4, 0, h100).columns, 192) << "0.97, of 128 columns 1.19";
  EXPECT_EQ(plan(8760, 3520, 6592, 4, 32, h100).columns, 256) << "1.02, of 128 columns 1.40";
  EXPECT_TRUE(plan(32768, 4096, 1024, 4, 64, h100).in_turns) << "810 µs, of 128 columns 903";
  EXPECT_TRUE(plan(16384, 4096, 2048, 4, 64, h100).in_turns) << "770 µs, of 256 columns 797";
  EXPECT_FALSE(plan(16384, 4096, 4096, 4, 64, h100).in_turns) << "1437 µs, in turns 1464";
  EXPECT_EQ(plan(752, 2368, 2944, 4, 0, h100).columns, 128) << "0.91: the second cache holds it";
  EXPECT_EQ(plan(7440, 1920, 6656, 4, 0, 0).columns, plan(7440, 1920, 6656, 4, 0, h200).columns) << "nobody knows";
}

TEST(HopperPlan, HalvesTakeWhatTheCudaCoresAreSlowAt) {
  EXPECT_EQ(halves_reason({1024, 8192, 8192}), "");
  EXPECT_EQ(halves_reason({16384, 4096, 4096}), "");
  EXPECT_EQ(halves_reason({32768, 4096, 1024}), "");
  EXPECT_EQ(halves_reason({256, 8192, 8192}), "") << "388 µs measured, 742 for the linear alone";
  EXPECT_EQ(halves_reason({2048, 2048, 256}), "");
}

TEST(HopperPlan, HalvesLeaveSmallProblems) {
  EXPECT_EQ(halves_reason({16, 512, 512}), few);
  EXPECT_EQ(halves_reason({128, 512, 1024}), "") << "16 µs measured, 33 for the linear alone";
  EXPECT_EQ(halves_reason({1, 8192, 8192}), few);
}

// In so short a sum two halves are no nearer than float32.
TEST(HopperPlan, HalvesLeaveShortSums) {
  const std::string is_short = "its products are so short that halves gain nothing";
  EXPECT_EQ(halves_reason({65536, 8192, 255}), is_short);
  EXPECT_EQ(halves_reason({65536, 8192, 256}), "");
  EXPECT_EQ(halves_reason({65536, 8192, 255}, Wanted::always), "");
}

TEST(HopperPlan, NobodyTakesEmptySums) {
  for (const Wanted wanted : {Wanted::always, Wanted::where_faster}) {
    EXPECT_EQ(halves_reason({1024, 8192, 0}, wanted), "its sums are empty");
    EXPECT_EQ(reason({1024, 8192, 0}, wanted), "its sums are empty");
  }
}

TEST(HopperPlan, HalvesHeedTheSwitchAndTheGroups) {
  EXPECT_EQ(halves_reason({1024, 8192, 8192}, Wanted::never), "TAILOR_HOPPER=never");
  Shape shape{1024, 8192, 8192};
  shape.group_width = 128;
  EXPECT_EQ(halves_reason(shape), "its groups are not 16, 32 or 64 columns wide");
}

// As those of 16 bits.
TEST(HopperPlan, TilesOfHalvesAreCutToFillTheProcessors) {
  const auto columns = [](Shape shape, Wanted wanted = Wanted::where_faster) {
    shape.processors = 132;
    shape.element_bytes = 4;
    return plan_tiles_of_halves(shape, wanted).columns;
  };
  EXPECT_EQ(columns({16384, 4096, 4096}), 256);
  EXPECT_EQ(columns({1024, 8192, 8192}), 256) << "543 µs measured, settled, and 560 by 128";
  EXPECT_EQ(columns({856, 1536, 1536}), 128) << "43 µs measured, 69 by 256";
  EXPECT_EQ(columns({728, 7872, 6784}), 256) << "462 µs measured, the last round narrow, 459 by 128, 552 by 256 alone";
  EXPECT_EQ(columns({3272, 2752, 4032}), 256) << "382 µs measured, the last round narrow, 386 by 128, 436 by 256 alone";
  EXPECT_EQ(columns({2536, 3200, 4480}), 256) << "372 µs measured, 382 by 128";
  EXPECT_EQ(columns({16384, 4096, 4096}, Wanted::always_128), 128);
  EXPECT_EQ(columns({856, 1536, 1536}, Wanted::always), 256);
  EXPECT_EQ(columns({856, 1536, 1536}, Wanted::always_192), 256) << "there are none of 192";
  Shape of_gradients{16384, 4096, 4096};
  of_gradients.of_gradients = true;
  EXPECT_EQ(columns(of_gradients), 128) << "wide ones have no registers for halves of far reach";
  EXPECT_EQ(columns(of_gradients, Wanted::always), 128);
}

// As many of x's rows as spare warps are sure to make in time, and none that the first round of tiles wants.
TEST(HopperPlan, RowsMadeBesideTheProducts) {
  const auto before = [](Shape shape, Wanted wanted = Wanted::where_faster) {
    shape.processors = 132;
    shape.element_bytes = 4;
    return shape.rows - plan_tiles_of_halves(shape, wanted).rows_beside;
  };
  EXPECT_EQ(before({32768, 4096, 1024}), 2048);
  EXPECT_EQ(before({16384, 4096, 4096}), 2048);
  EXPECT_EQ(before({16384, 1024, 4096}), 11520) << "the first round wants 6144, but the products are few";
  EXPECT_EQ(before({16384, 128, 4096}), 16384) << "all in the first round";
  EXPECT_EQ(before({1024, 8192, 8192}), 1024) << "all in the first round";
  EXPECT_EQ(before({2048, 4096, 4096}), 2048);
  EXPECT_EQ(before({2049, 4096, 4096}), 2048);
  EXPECT_EQ(before({300, 4096, 4096}, Wanted::always), 128) << "tests are to see them";
  EXPECT_EQ(before({128, 4096, 4096}, Wanted::always), 128);
  EXPECT_EQ(before({7, 4096, 4096}, Wanted::always_128), 7);
  const Shape many{32768, 4096, 1024, 4, 0, 132};
  EXPECT_LT(plan_tiles_of_halves(many, Wanted::where_faster).time,
            plan_tiles_of_halves(many, Wanted::where_faster).rounds * 40.2 + 20)
      << "what is made beside takes no time";
}

// What is taken by one way of cutting is not left because another is faster still.
TEST(HopperPlan, HalvesAreComparedWithOneTime) {
  for (const Shape& shape : {Shape{1024, 1024, 256, 4, 0, 132}, Shape{700, 1024, 512, 4, 0, 132}}) {
    EXPECT_EQ(halves_reason(shape), "") << shape.rows;
    EXPECT_LT(plan_tiles_of_halves(shape, Wanted::where_faster).time, float32_apart(shape)) << shape.rows;
    EXPECT_LT(plan_few_halves(shape).time, float32_apart(shape)) << shape.rows;
  }
  const auto apart = [](std::int64_t rows) { return float32_apart({rows, 8192, 8192, 4, 0, 132}); };
  EXPECT_GT(apart(256), 500) << "707 µs measured";
  EXPECT_LT(apart(256), 900);
  EXPECT_GT(apart(1024), 2500) << "2685 µs measured";
  EXPECT_LT(apart(1024), 3000);
}

}  // namespace
}  // namespace tailor::hopper
