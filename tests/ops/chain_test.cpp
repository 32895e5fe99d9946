// A formula written down as steps, and what no formula may ask for.
#include "ops/chain.h"
#include "kernels/chains.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tailor {
namespace {

std::string text(const Chain& chain) {
  std::string result;
  for (const Step& step : chain.steps) {
    result += to_string(step.kind);
    if (!step.name.empty()) result += " " + std::string(step.name);
    if (step.left >= 0) result += " " + std::to_string(step.left);
    if (step.right >= 0) result += " " + std::to_string(step.right);
    result += '\n';
  }
  return result;
}

TEST(Describe, EveryChain) {
  EXPECT_EQ(text(describe<chains::linear_mul_batch_norm>()), "linear\nvector scale\nmul 0 1\nbatch_norm 2\n");
  EXPECT_EQ(text(describe<chains::linear_sigmoid_mul_add>()), "linear\nsigmoid 0\nscalar factor\nmul 1 2\nadd 3 0\n");
  EXPECT_EQ(text(describe<chains::linear_add_swish_group_norm>()),
            "linear\nvector addend\nadd 0 1\nswish 2\ngroup_norm 3\n");
  EXPECT_EQ(text(describe<chains::linear_swish_add_group_norm>()),
            "linear\nswish 0\nvector addend\nadd 1 2\ngroup_norm 3\n");
  EXPECT_EQ(text(describe<chains::linear_batch_norm_add_div_swish>()),
            "linear\nbatch_norm 0\nvector addend\nadd 1 2\nscalar divisor\ndiv 3 4\nswish 5\n");
  EXPECT_EQ(text(describe<chains::linear_group_norm_swish_mul_swish>()),
            "linear\ngroup_norm 0\nswish 1\nvector scale\nmul 2 3\nswish 4\n");
}

template <class C>
std::string refusal() {
  try {
    describe<C>();
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

struct tree {
  static constexpr std::string_view name = "tree";
  static constexpr auto formula = sigmoid(y) + swish(y);
};
struct scalar_first {
  static constexpr std::string_view name = "scalar_first";
  static constexpr auto formula = scalar<"a"> * y;
};
struct two_norms {
  static constexpr std::string_view name = "two_norms";
  static constexpr auto formula = batch_norm(group_norm(y));
};
struct too_long {
  static constexpr std::string_view name = "too_long";
  static constexpr auto five = sigmoid(sigmoid(sigmoid(sigmoid(sigmoid(y)))));
  static constexpr auto formula = swish(five) * vec<"a"> + vec<"b"> + vec<"c"> + vec<"d"> + vec<"e">;
};

struct many_operands {
  static constexpr std::string_view name = "many_operands";
  static constexpr auto formula = batch_norm(y * vec<"a"> + vec<"b">) + vec<"c">;
};

TEST(Describe, RefusesWhatIsNoLine) {
  EXPECT_EQ(refusal<tree>(), "formula of tree: a step does not read the one before it");
  EXPECT_EQ(refusal<scalar_first>(),
            "formula of scalar_first: a scalar stands left of an operator; write it on the right");
  EXPECT_EQ(refusal<two_norms>(), "formula of two_norms: more than one norm");
  EXPECT_EQ(refusal<too_long>(), "formula of too_long: more steps than Chain::max_steps");
  EXPECT_EQ(refusal<many_operands>(),
            "formula of many_operands: more operands, a norm's weight and bias among them, than Chain::max_operands");
}

TEST(AllChains, LongestFirst) {
  const auto& all = all_chains();
  EXPECT_EQ(all.size(), 6u);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const Chain* a, const Chain* b) { return a->steps.size() > b->steps.size(); }));
  for (const Chain* chain : all) EXPECT_EQ(find_chain(chain->name), chain);
  EXPECT_EQ(find_chain("linear"), nullptr);
}

}  // namespace
}  // namespace tailor
