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

// Tensors and numbers in whatever holds them; keys that no other run makes go by their place.
TEST(Compare, WhatHoldsTensors) {
  const auto nested = [](double first) {
    return at::_nested_tensor_from_tensor_list({at::full({2}, first), at::ones({3})});
  };
  const auto future = [](double number) {
    auto made = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
    made->markCompleted(at::full({2}, number));
    return c10::IValue(made);
  };
  const auto by_number = [](double key, double number) {
    c10::Dict<double, at::Tensor> dict;
    dict.insert(key, at::full({2}, number));
    return c10::IValue(dict);
  };
  const auto differs = [](const c10::IValue& one, const c10::IValue& other) {
    if (const auto different = other_shape(one, other, "output")) return *different;
    const auto ours = tensors_in(one, "output"), theirs = tensors_in(other, "output");
    EXPECT_FALSE(theirs.empty());
    EXPECT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < theirs.size(); ++i)
      if (const auto different = difference({theirs[i].name, ours[i].tensor, theirs[i].tensor, {}}, {}))
        return *different;
    return std::string();
  };
  EXPECT_EQ(differs(nested(1), nested(1)), "");
  EXPECT_TRUE(differs(nested(2), nested(1)).starts_with("output[0] differs")) << differs(nested(2), nested(1));
  EXPECT_EQ(differs(future(1), future(1)), "");
  EXPECT_TRUE(differs(future(2), future(1)).starts_with("output differs"));
  EXPECT_EQ(differs(by_number(3.0001, 1), by_number(3, 1)), "");
  EXPECT_TRUE(differs(by_number(4, 1), by_number(3, 1)).starts_with("a key of output differs"));
  EXPECT_TRUE(differs(by_number(3, 2), by_number(3, 1)).starts_with("output["));
  c10::Dict<std::string, at::Tensor> mine, yours;
  mine.insert("a", at::ones(1));
  yours.insert("b", at::ones(1));
  EXPECT_EQ(other_shape(mine, yours, "output"), "output[b] is missing");
}

// What torch can keep, and neither compare nor convert.
TEST(Compare, Bytes) {
  const auto bits = [](int64_t number) { return at::full({4}, number, at::kByte).view(at::ScalarType::Bits8); };
  EXPECT_EQ(difference({"buffer", bits(1), bits(1), {}}, {}), std::nullopt);
  EXPECT_EQ(difference({"buffer", bits(2), bits(1), {}}, {}), "buffer has other bytes");
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
