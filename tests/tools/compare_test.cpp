#include "tools/compare.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tailor::tool {
namespace {

// The first `others` of ten numbers changed.
at::Tensor with_others(int64_t others) {
  at::Tensor numbers = at::arange(10);
  numbers.narrow(0, 0, others).add_(100);
  return numbers;
}

// An index of the largest may hang on a rounding, and then eager's is not always float64's.
TEST(Compare, IntegersMayHangOnARounding) {
  const auto differs = [](int64_t of_fused, int64_t of_eager) {
    const Triple value{"index", with_others(of_fused), with_others(of_eager), with_others(0)};
    return difference(value, {.times = 4}).value_or("");
  };
  EXPECT_EQ(differs(0, 0), "");
  EXPECT_EQ(differs(0, 1), "");
  EXPECT_EQ(differs(4, 1), "");
  EXPECT_EQ(differs(5, 1), "index differs; it is of Long and should be equal");
  EXPECT_NE(differs(1, 0), "");
  EXPECT_NE(difference({"index", with_others(1), with_others(0), {}}, {.times = 4}), std::nullopt) << "no referee";
}

// The mean of numbers that cancel has as large an error as they do.
TEST(Compare, NumbersHaveTheSizeOfTensors) {
  EXPECT_EQ(other_shape(1.0005, 1.0, "mean"), std::nullopt);
  EXPECT_EQ(other_shape(1.002, 1.0, "mean"), "mean differs by 0.002");
  EXPECT_EQ(other_shape(2e-9, 1e-9, "mean"), "mean differs by 1e-09");
  EXPECT_EQ(other_shape(2e-9, 1e-9, "mean", {.size = 1.0}), std::nullopt);
  EXPECT_EQ(other_shape(c10::List<double>({0, 0.01}), c10::List<double>({0, 0}), "all", {.size = 1.0}),
            "all[1] differs by 0.01");
}

TEST(Compare, NumbersHaveTheDigitsOfTheirDtype) {
  for (const auto& [dtype, right, wrong] : {std::tuple{at::kDouble, 1.0005, 1.002},
                                            {at::kFloat, 1.0005, 1.002},
                                            {at::kHalf, 1.05, 1.2},
                                            {at::kBFloat16, 1.2, 1.4}}) {
    EXPECT_EQ(other_shape(right, 1.0, "mean", {.dtype = dtype}), std::nullopt) << dtype;
    EXPECT_NE(other_shape(wrong, 1.0, "mean", {.dtype = dtype}), std::nullopt) << dtype;
  }
}

}  // namespace
}  // namespace tailor::tool
