#include "kernels/hopper/elements_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace tailor::hopper {
namespace {

enum class Way : std::uint8_t { tiles, strips, apart };
const char* name_of(Way way) { return way == Way::tiles ? "tiles" : way == Way::strips ? "strips" : "apart"; }

std::string why_not(Shape shape, Wanted wanted) {
  shape.processors = 132;
  const char* why = refuses(shape, wanted);
  return why != nullptr ? why : "";
}

Way way_of(Shape shape, Wanted wanted = Wanted::where_faster) {
  shape.processors = 132;
  if (refuses(shape, wanted) != nullptr) return Way::apart;
  return takes_strips_of_elements(shape, wanted) ? Way::strips : Way::tiles;
}

// What an H200 took, in microseconds, of bfloat16: the best strips, tiles of 128 columns (? where nobody looked), and torch's linear
// with a tail apart; calls, but where it says that it is the kernels. Where two ways are within 4% of each other there is no row.
TEST(ElementsPlan, WhatWasMeasured) {
  struct Measured {
    Shape shape;
    Way way;
    const char* times;  // strips, tiles, apart
  };
  for (const Measured& each : {
           Measured{{128, 512, 1024}, Way::strips, "9.4, 11.7, 10.0"},
           {{128, 1024, 512, 2, 32}, Way::strips, "8.5, 10.4, 9.2"},
           {{256, 8192, 8192}, Way::tiles, "58.9, 52.8, 66.2"},
           {{16, 4096, 4096}, Way::strips, "19.4, 33.0, 21.3"},
           {{600, 1024, 4096}, Way::apart, "20.8, 26.0, 18.9"},
           {{512, 2048, 8192}, Way::apart, "38.6, 45.7, 37.2"},
           {{512, 1024, 1024}, Way::strips, "8.2, ?, 8.8, the kernels"},
           {{256, 1024, 2048}, Way::strips, "9.1, ?, 10.3, the kernels"},
           {{1024, 2048, 2048}, Way::tiles, "21.7, 17.5, 23.8"},
           {{256, 8192, 1024}, Way::tiles, "18.2, 13.7, 23.0"},
           {{2048, 1024, 1024}, Way::tiles, "15.8, 12.6, 22.2"},
           {{856, 1536, 1536, 2, 32}, Way::tiles, "19.2, 15.9, 16.8"},
           {{1648, 1984, 1216, 2, 32}, Way::tiles, "28.5, 23.2, 33.0"},
       })
    EXPECT_STREQ(name_of(way_of(each.shape)), name_of(each.way))
        << each.shape.rows << " x " << each.shape.inner << " -> " << each.shape.columns
        << " measured in strips, tiles, apart: " << each.times;
}

// With gradients the backward wants the linear's result, which only tiles keep.
TEST(ElementsPlan, StripsKeepNothing) {
  Shape few{128, 512, 1024};
  EXPECT_EQ(way_of(few), Way::strips);
  EXPECT_EQ(way_of(few, Wanted::strips), Way::strips);
  few.keeps_result = true;
  EXPECT_EQ(way_of(few), Way::apart);
  EXPECT_EQ(way_of(few, Wanted::always), Way::tiles);
  EXPECT_EQ(why_not(few, Wanted::strips), strips_keep_nothing);
  Shape many{32768, 4096, 1024, 2, 64, 132};
  const double alone = estimate(many, Wanted::where_faster).whole;
  many.keeps_result = true;
  EXPECT_EQ(way_of(many), Way::tiles);
  EXPECT_GT(estimate(many, Wanted::where_faster).whole, alone) << "it writes twice as much";
}

TEST(ElementsPlan, StripsAreCutToFillTheProcessors) {
  const auto plan = [](std::int64_t rows, std::int64_t columns, std::int64_t inner) {
    return plan_few_elements({rows, columns, inner, 2, 0, 132});
  };
  for (const auto& [rows, tile] : {std::pair{1, 32}, {32, 32}, {33, 64}, {64, 64}, {65, 128}, {128, 128}, {256, 128}})
    EXPECT_EQ(plan(rows, 8192, 8192).tile_rows, tile) << rows;
  EXPECT_EQ(plan(128, 512, 1024).tile_rows, 32) << "9.4 µs measured, 12.5 in tiles of 128 rows";
  EXPECT_EQ(plan(128, 512, 1024).parts, 2);
  EXPECT_EQ(plan(600, 1024, 4096).parts, 2) << "21 µs measured, 32 in three parts, which do not fit at a time";
  EXPECT_EQ(plan(16, 8192, 8192).parts, 2);
  EXPECT_EQ(plan(16, 16384, 8192).parts, 1);
  EXPECT_EQ(plan(1, 16, 8).parts, 1) << "a part has a step at least";
  for (const int rows : {1, 16, 64, 128}) {
    const double time = plan(rows, 8192, 8192).time;
    EXPECT_GT(time, 42) << rows << " rows: 43 to 50 µs measured";
    EXPECT_LT(time, 54) << rows;
  }
}

TEST(ElementsPlan, TheWeightIsReadInPassing) {
  constexpr double h100 = 3.35e6, h200 = 4.9e6;
  const auto in_passing = [](double memory, Shape shape, bool at_a_time) {
    shape.memory_rate = memory;
    return reads_weight_in_passing(shape, at_a_time);
  };
  EXPECT_TRUE(in_passing(h100, {16, 8192, 8192, 2}, true)) << "58.1 µs measured, 60.6 otherwise";
  EXPECT_TRUE(in_passing(h100, {512, 4096, 4096, 2}, true)) << "29.2, 33.9";
  EXPECT_TRUE(in_passing(h100, {512, 4096, 4096, 2}, false)) << "it stays there for as long as it takes";
  EXPECT_TRUE(in_passing(h100, {16, 4096, 4096, 4}, true)) << "44.5, 50.6";
  EXPECT_FALSE(in_passing(h100, {16, 8192, 8192, 4}, true)) << "114, 110";
  EXPECT_TRUE(in_passing(h200, {16, 8192, 8192, 4}, true)) << "87, 91; settled 80, 83";
  EXPECT_TRUE(in_passing(h200, {64, 8192, 8192, 4}, true)) << "settled 83, 91";
  EXPECT_FALSE(in_passing(h200, {512, 8192, 8192, 4}, false)) << "TF32: 184, 179";
  EXPECT_FALSE(in_passing(0, {16, 8192, 8192, 4}, true)) << "of a GPU of which nothing is known";
  for (const double memory : {h100, h200})
    EXPECT_FALSE(in_passing(memory, {32768, 4096, 1024, 2}, true))
        << "an H100 took 492, 443: all tiles of rows read it, again and again";
}

// What few rows wait for is in torch's linear too.
TEST(ElementsPlan, TorchsLinearReadsTheWeight) {
  const auto time = [](std::int64_t rows, std::int64_t columns, std::int64_t inner) {
    return time_of_linear({rows, columns, inner, 2, 0, 132});
  };
  for (const int rows : {1, 16, 64, 128}) {
    EXPECT_GT(time(rows, 8192, 8192), 42) << rows << " rows: 44 to 47 µs measured";
    EXPECT_LT(time(rows, 8192, 8192), 48) << rows;
    EXPECT_GT(time(rows, 4096, 4096), 17) << rows << " rows: 18 to 19 µs measured";
    EXPECT_LT(time(rows, 4096, 4096), 20) << rows;
  }
  EXPECT_LT(time(512, 1024, 1024), 9) << "7.7 µs measured";
}

// Of which one in two is empty.
TEST(ElementsPlan, TilesOfFewRowsWaitForTheWeight) {
  const auto time = [](std::int64_t rows, std::int64_t size) {
    return plan_tiles({rows, size, size, 2, 0, 132}, Wanted::where_faster).time;
  };
  for (const int rows : {1, 16, 64, 128}) EXPECT_GT(time(rows, 8192), 65) << rows << " rows: 70 to 87 µs measured";
  EXPECT_LT(time(256, 8192), 55) << "52.8 µs measured";
  EXPECT_LT(time(64, 4096), 34) << "31.6 µs measured";
  EXPECT_NE(way_of({128, 8192, 4096}), Way::tiles);
}

TEST(ElementsPlan, WhoGetsStrips) {
  const Shape few_of_them{16, 8192, 8192};
  for (const Wanted wanted :
       {Wanted::always, Wanted::always_192, Wanted::always_128, Wanted::always_narrow, Wanted::gather})
    EXPECT_EQ(way_of(few_of_them, wanted), Way::tiles);
  EXPECT_EQ(way_of(few_of_them, Wanted::few_rows), Way::strips) << "that is about float32";
  EXPECT_EQ(way_of(few_of_them, Wanted::never), Way::apart);
  for (const Shape& each : {Shape{16384, 4096, 4096}, Shape{1, 8, 8}, Shape{600, 1024, 4096}})
    EXPECT_EQ(way_of(each, Wanted::strips), Way::strips) << each.rows;
  EXPECT_EQ(way_of({2049, 128, 8192}), Way::apart) << "nobody has measured it";
  Shape other = few_of_them;
  other.batch_statistics = true;
  EXPECT_FALSE(takes_strips_of_elements(other, Wanted::strips));
  other = few_of_them;
  other.element_bytes = 4;
  EXPECT_FALSE(takes_strips_of_elements(other, Wanted::strips)) << "TF32";
}

TEST(ElementsPlan, NobodyTakesIt) {
  EXPECT_EQ(why_not({16, 8192, 0}, Wanted::strips), "its sums are empty");
  EXPECT_EQ(why_not({16, 8192, 8192, 2, 128}, Wanted::strips), "its groups are not 16, 32 or 64 columns wide");
  EXPECT_EQ(why_not({16, 1 << 30, 8}, Wanted::strips), "it has 2^30 rows or columns or more");
  constexpr std::int64_t most = (std::int64_t{1} << 30) - 1;
  EXPECT_FALSE(takes_strips_of_elements({most, most, 8, 2, 0, 132}, Wanted::strips))
      << "more blocks than a launch takes";
  for (const Shape& each : {Shape{most, 128, 8, 2, 0, 132}, Shape{1, most, 8, 2, 0, 132}}) {
    EXPECT_TRUE(takes_strips_of_elements(each, Wanted::strips));
    const StripsPlan plan = plan_few_elements(each);
    EXPECT_LT(ceiling(each.columns, 128) * ceiling(each.rows, plan.tile_rows) * plan.parts, std::int64_t{1} << 31);
  }
}

}  // namespace
}  // namespace tailor::hopper
