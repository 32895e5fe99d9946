// A formula before and after its norm, as types.
#include "kernels/split.h"

#include <gtest/gtest.h>

#include "kernels/chains.h"

namespace tailor {
namespace {

using namespace chains;
using formula::Normed;

template <class A, class B>
constexpr bool same = std::is_same_v<std::remove_cv_t<A>, std::remove_cv_t<B>>;
inline constexpr Normed normed;

TEST(Split, TheFormulaBeforeTheNorm) {
  EXPECT_TRUE((same<Before<linear_mul_batch_norm>, decltype(y * vec<"scale">)>));
  EXPECT_TRUE((same<Before<linear_add_swish_group_norm>, decltype(swish(y + vec<"addend">))>));
  EXPECT_TRUE((same<Before<linear_swish_add_group_norm>, decltype(swish(y) + vec<"addend">)>));
  EXPECT_TRUE((same<Before<linear_batch_norm_add_div_swish>, decltype(y)>));
  EXPECT_TRUE((same<Before<linear_group_norm_swish_mul_swish>, decltype(y)>));
}

TEST(Split, TheFormulaAfterTheNorm) {
  EXPECT_TRUE((same<After<linear_mul_batch_norm>, Normed>));
  EXPECT_TRUE((same<After<linear_add_swish_group_norm>, Normed>));
  EXPECT_TRUE(
      (same<After<linear_batch_norm_add_div_swish>, decltype(swish((normed + vec<"addend">) / scalar<"divisor">))>));
  EXPECT_TRUE((same<After<linear_group_norm_swish_mul_swish>, decltype(swish(swish(normed) * vec<"scale">))>));
}

TEST(Split, WithoutANormEverythingStandsBeforeIt) {
  EXPECT_TRUE((same<Before<linear_sigmoid_mul_add>, Formula<linear_sigmoid_mul_add>>));
  EXPECT_FALSE(has_batch_norm<linear_sigmoid_mul_add> || has_group_norm<linear_sigmoid_mul_add>);
}

struct residual {
  static constexpr auto formula = y * vec<"a"> + sigmoid(batch_norm(y * vec<"b">)) * vec<"c">;
};

TEST(Split, ANormInTheRightOperand) {
  EXPECT_TRUE((same<Before<residual>, decltype(y * vec<"b">)>));
  EXPECT_TRUE((same<After<residual>, decltype(y * vec<"a"> + sigmoid(normed) * vec<"c">)>));
}

TEST(Split, OperandsAreNumberedInTheFormulasOrder) {
  EXPECT_EQ(vectors_of<residual>, 3);
  EXPECT_EQ(scalars_of<linear_batch_norm_add_div_swish>, 1);
  EXPECT_EQ((position_of<residual, formula::Vec<"c">>), 2);
  EXPECT_EQ((position_of<linear_batch_norm_add_div_swish, formula::Scalar<"divisor">>), 0);
}

TEST(Split, VectorsBeforeAndBehindTheNorm) {
  EXPECT_TRUE(is_after_norm<residual>(0));
  EXPECT_FALSE(is_after_norm<residual>(1));
  EXPECT_TRUE(is_after_norm<residual>(2));
  EXPECT_TRUE(is_after_norm<linear_group_norm_swish_mul_swish>(0));
  EXPECT_FALSE(is_after_norm<linear_mul_batch_norm>(0));
}

}  // namespace
}  // namespace tailor
