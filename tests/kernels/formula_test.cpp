// The formulas fold as eager computes them, in plain C++ and at compile time. formula_test.cu does the same on a GPU.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <type_traits>

#include "kernels/chains.h"
#include "ops/chain.h"

namespace tailor {
namespace {

// Interprets a formula by writing down each call in its order.
struct Scribe {
  std::string calls;
  int next = 0;

  std::string put(const std::string& call) {
    const std::string name = "v" + std::to_string(next++);
    calls += name + " = " + call + "\n";
    return name;
  }
  std::string linear() { return "y"; }
  template <class V>
  std::string vector(V) {
    return put("vector " + std::string(V::name.view()));
  }
  template <class S>
  std::string scalar(S) {
    return put("scalar " + std::string(S::name.view()));
  }
  std::string add(const std::string& a, const std::string& b) { return put(a + " + " + b); }
  std::string mul(const std::string& a, const std::string& b) { return put(a + " * " + b); }
  std::string div(const std::string& a, const std::string& b) { return put(a + " / " + b); }
  std::string sigmoid(const std::string& a) { return put("sigmoid " + a); }
  std::string swish(const std::string& a) { return put("swish " + a); }
  std::string batch_norm(const std::string& a) { return put("batch_norm " + a); }
  std::string group_norm(const std::string& a) { return put("group_norm " + a); }
};

template <class Chain>
std::string calls_of() {
  Scribe scribe;
  const std::string result = Formula<Chain>::fold(scribe);
  EXPECT_EQ(result, "v" + std::to_string(scribe.next - 1));  // the last call gives the result
  return scribe.calls;
}

TEST(Fold, InTheOrderOfEager) {
  EXPECT_EQ(calls_of<chains::linear_mul_batch_norm>(),
            "v0 = vector scale\n"
            "v1 = y * v0\n"
            "v2 = batch_norm v1\n");
  EXPECT_EQ(calls_of<chains::linear_sigmoid_mul_add>(),
            "v0 = sigmoid y\n"
            "v1 = scalar factor\n"
            "v2 = v0 * v1\n"
            "v3 = v2 + y\n");
  EXPECT_EQ(calls_of<chains::linear_add_swish_group_norm>(),
            "v0 = vector addend\n"
            "v1 = y + v0\n"
            "v2 = swish v1\n"
            "v3 = group_norm v2\n");
  EXPECT_EQ(calls_of<chains::linear_swish_add_group_norm>(),
            "v0 = swish y\n"
            "v1 = vector addend\n"
            "v2 = v0 + v1\n"
            "v3 = group_norm v2\n");
  EXPECT_EQ(calls_of<chains::linear_batch_norm_add_div_swish>(),
            "v0 = batch_norm y\n"
            "v1 = vector addend\n"
            "v2 = v0 + v1\n"
            "v3 = scalar divisor\n"
            "v4 = v2 / v3\n"
            "v5 = swish v4\n");
  EXPECT_EQ(calls_of<chains::linear_group_norm_swish_mul_swish>(),
            "v0 = group_norm y\n"
            "v1 = swish v0\n"
            "v2 = vector scale\n"
            "v3 = v1 * v2\n"
            "v4 = swish v3\n");
}

struct nested {
  static constexpr auto formula = (vec<"a"> + y) * (scalar<"b"> / vec<"c">);
};

TEST(Fold, BothOperandsOfEveryOperator) {
  EXPECT_EQ(calls_of<nested>(),
            "v0 = vector a\n"
            "v1 = v0 + y\n"
            "v2 = scalar b\n"
            "v3 = vector c\n"
            "v4 = v2 / v3\n"
            "v5 = v1 * v4\n");
}

// Exact in binary, so that a fold at compile time can be compared.
struct Numbers {
  constexpr double linear() { return 4; }
  template <class V>
  constexpr double vector(V) {
    return V::name.view() == "scale" ? 0.5 : 2;
  }
  template <class S>
  constexpr double scalar(S) {
    return S::name.view() == "factor" ? 8 : 16;
  }
  constexpr double add(double a, double b) { return a + b; }
  constexpr double mul(double a, double b) { return a * b; }
  constexpr double div(double a, double b) { return a / b; }
  constexpr double sigmoid(double a) { return a - 3; }
  constexpr double swish(double a) { return a * a; }
  constexpr double batch_norm(double a) { return a + 100; }
  constexpr double group_norm(double a) { return a + 200; }
};

template <class Chain>
constexpr double value_of() {
  Numbers numbers;
  return Formula<Chain>::fold(numbers);
}
static_assert(value_of<chains::linear_mul_batch_norm>() == 4 * 0.5 + 100);
static_assert(value_of<chains::linear_sigmoid_mul_add>() == (4 - 3) * 8 + 4);
static_assert(value_of<chains::linear_add_swish_group_norm>() == (4 + 2) * (4 + 2) + 200);
static_assert(value_of<chains::linear_swish_add_group_norm>() == 4 * 4 + 2 + 200);
static_assert(value_of<chains::linear_batch_norm_add_div_swish>() == ((4 + 100 + 2) / 16.0) * ((4 + 100 + 2) / 16.0));
static_assert(value_of<chains::linear_group_norm_swish_mul_swish>() == 20808.0 * 20808.0);  // (204² / 2)²

TEST(Formula, CarriesNoData) {
  EXPECT_TRUE(std::is_empty_v<Formula<chains::linear_mul_batch_norm>>);
  EXPECT_TRUE(std::is_empty_v<Formula<chains::linear_group_norm_swish_mul_swish>>);
}

TEST(Formula, NamesOfChains) {
  const std::map<std::string_view, std::string_view> names = {
      {"linear_mul_batch_norm", chains::linear_mul_batch_norm::name},
      {"linear_sigmoid_mul_add", chains::linear_sigmoid_mul_add::name},
      {"linear_add_swish_group_norm", chains::linear_add_swish_group_norm::name},
      {"linear_swish_add_group_norm", chains::linear_swish_add_group_norm::name},
      {"linear_batch_norm_add_div_swish", chains::linear_batch_norm_add_div_swish::name},
      {"linear_group_norm_swish_mul_swish", chains::linear_group_norm_swish_mul_swish::name}};
  for (const auto& [wanted, name] : names) EXPECT_EQ(name, wanted);
  // A chain with an op that is missing here is, it seems, missing from the tests above.
  for (const Chain* chain : all_chains()) EXPECT_TRUE(names.contains(chain->name)) << chain->name;
}

}  // namespace
}  // namespace tailor
