#include "tools/compare.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

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

// What was computed in bfloat16 has its digits, though it was made float32 at the end.
TEST(Compare, WhatItWasComputedInCounts) {
  const Triple value{"output", at::full({4}, 1.05f), at::ones({4}), {}};
  EXPECT_EQ(difference(value, {.times = 1, .computed = at::kBFloat16}), std::nullopt);
  EXPECT_NE(difference(value, {.times = 1}), std::nullopt);
  EXPECT_NE(difference({"output", at::full({4}, 1.05), at::ones({4}, at::kDouble), {}}, {.times = 1}), std::nullopt);
}

// Whichever way their layout has the numbers; and of a tensor without any, nothing is said.
TEST(Compare, Layouts) {
  const at::Tensor right = at::eye(4), wrong = at::eye(4) * 2;
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> layouts = {
      [](const at::Tensor& t) { return t.to_sparse(); },
      [](const at::Tensor& t) { return t.to_sparse_csr(); },
      [](const at::Tensor& t) { return t.to_mkldnn(); },
  };
  for (const auto& layout : layouts) {
    EXPECT_EQ(difference({"output", layout(right), layout(right), right.to(at::kDouble)}, {}), std::nullopt);
    EXPECT_NE(difference({"output", layout(wrong), layout(right), right.to(at::kDouble)}, {}), std::nullopt);
    EXPECT_NE(difference({"output", right, layout(right), {}}, {}), std::nullopt) << "another layout";
    EXPECT_EQ(largest(layout(wrong)), 2);
  }
  const auto none = [](const at::Tensor& t) { return t.to(at::kMeta); };
  EXPECT_EQ(difference({"output", none(wrong), none(right), {}}, {}), std::nullopt);
  EXPECT_NE(difference({"output", none(at::ones(3)), none(right), {}}, {}), std::nullopt) << "another shape";
  EXPECT_EQ(largest(none(right)), 0);
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
