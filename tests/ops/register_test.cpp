// The schemas, which are a promise to saved files: written out once more, so that no change goes unnoticed.
#include "ops/register.h"
#include "kernels/chains/linear_sigmoid_mul_add.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include "sample.h"

namespace tailor::test {
namespace {

#define LINEAR "Tensor input, Tensor weight, Tensor? bias"
#define STATISTICS "Tensor? norm_weight, Tensor? norm_bias, Tensor(a!)? running_mean, Tensor(b!)? running_var"
#define BN STATISTICS ", bool training, float momentum, float eps, bool cudnn_enabled"
#define INFERENCE \
  "Tensor? norm_weight, Tensor? norm_bias, Tensor? running_mean, Tensor? running_var, float eps, bool cudnn_enabled"
#define GN "int num_groups, Tensor? norm_weight, Tensor? norm_bias, float eps, bool cudnn_enabled"

#define OPERANDS "Tensor? first=None, Tensor? second=None, Tensor? third=None, Tensor? fourth=None"

const char* promised[] = {
    "tailor::linear_mul_batch_norm(" LINEAR ", Tensor scale, " BN ") -> Tensor",
    "tailor::linear_mul_batch_norm.inference(" LINEAR ", Tensor scale, " INFERENCE ") -> Tensor",
    "tailor::linear_sigmoid_mul_add(" LINEAR ", Scalar factor) -> Tensor",
    "tailor::linear_sigmoid_mul_add.Tensor(" LINEAR ", Tensor factor) -> Tensor",
    "tailor::linear_add_swish_group_norm(" LINEAR ", Tensor addend, " GN ") -> Tensor",
    "tailor::linear_swish_add_group_norm(" LINEAR ", Tensor addend, " GN ") -> Tensor",
    "tailor::linear_batch_norm_add_div_swish(" LINEAR ", " BN ", Tensor addend, Scalar divisor) -> Tensor",
    "tailor::linear_batch_norm_add_div_swish.Tensor(" LINEAR ", " BN ", Tensor addend, Tensor divisor) -> Tensor",
    "tailor::linear_batch_norm_add_div_swish.inference(" LINEAR ", " INFERENCE
    ", Tensor addend, Scalar divisor) -> Tensor",
    "tailor::linear_batch_norm_add_div_swish.inference_Tensor(" LINEAR ", " INFERENCE
    ", Tensor addend, Tensor divisor) -> Tensor",
    "tailor::linear_group_norm_swish_mul_swish(" LINEAR ", " GN ", Tensor scale) -> Tensor",
    "tailor::check.each(Tensor(a) input, Tensor weight, Tensor? bias, str chain, int last, str spelling, " OPERANDS
    ") -> (Tensor(a), Tensor)",
    "tailor::check(Tensor(a) input, Tensor weight, Tensor? bias, Tensor?[] operands, str chain, int last, str "
    "spelling) -> "
    "(Tensor(a), Tensor)",
    "tailor::unwritten.one(Tensor(a) value, Tensor written) -> Tensor(a)",
    "tailor::unwritten.optional_one(Tensor(a)? value, Tensor written) -> Tensor(a)?",
    "tailor::unwritten(Tensor(a) value, Tensor[] written) -> Tensor(a)",
    "tailor::unwritten.optional(Tensor(a)? value, Tensor[] written) -> Tensor(a)?",
    "tailor::uniform.each(Tensor input, Tensor weight, Tensor? bias, bool inference_only=False, bool "
    "order_only=False, " OPERANDS ") -> bool",
    "tailor::uniform(Tensor input, Tensor weight, Tensor? bias, Tensor?[] operands, bool inference_only=False, "
    "bool order_only=False) -> bool",
};

TEST(Schemas, AsPromised) {
  for (const char* text : promised) {
    const auto wanted = torch::jit::parseSchema(text);
    const auto handle = c10::Dispatcher::singleton().findSchema(wanted.operator_name());
    ASSERT_TRUE(handle) << text;
    EXPECT_EQ(c10::toString(handle->schema()), c10::toString(wanted));
  }
}

TEST(Schemas, NoOthers) {
  std::size_t count = 0;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames())
    count += name.name.starts_with("tailor::linear_");
  EXPECT_EQ(count, 11u);
}

// A schema whose arguments are not its formula's is refused when the library is loaded.
TEST(Define, ComparesNames) {
  torch::Library library(torch::Library::FRAGMENT, "tailor_test", std::nullopt, __FILE__, __LINE__);
  const char* wrong[] = {"linear_sigmoid_mul_add(" LINEAR ", Scalar scale) -> Tensor",
                         "linear_sigmoid_mul_add(" LINEAR ") -> Tensor",
                         "linear_sigmoid_mul_add(Tensor weight, Tensor input, Tensor? bias, Scalar factor) -> Tensor"};
  const std::size_t before = all_chains().size();
  for (const char* schema : wrong) {
    const std::string message = message_of([&] { define<chains::linear_sigmoid_mul_add>(library, {schema}); });
    EXPECT_NE(message.find("does not have the arguments of its formula: input, weight, bias, factor"),
              std::string::npos)
        << message;
  }
  EXPECT_EQ(all_chains().size(), before);
}

TEST(Define, IsForOneCopyOfTheLibrary) {
  torch::Library library(torch::Library::FRAGMENT, "tailor_test", std::nullopt, __FILE__, __LINE__);
  const std::string message = message_of([&] {
    define<chains::linear_sigmoid_mul_add>(library, {"linear_sigmoid_mul_add(" LINEAR ", Scalar factor) -> Tensor"});
  });
  EXPECT_NE(message.find("Tailor is loaded already"), std::string::npos) << message;
}

TEST(Errors, AreEagers) {
  Arguments a = sample();
  const auto same = [&](const char* name) {
    const std::string wanted = message_of([&] {
      const auto y = at::linear(a["input"].toTensor(), a["weight"].toTensor(), a["bias"].toTensor());
      at::group_norm(at::silu(y + a["addend"].toTensor()), a["num_groups"].toInt(), a["norm_weight"].toTensor());
    });
    EXPECT_NE(wanted, "");
    EXPECT_EQ(message_of([&] { call(op(name), a); }), wanted);
  };
  a["input"] = at::randn({7, 6}, at::kDouble);
  same("linear_add_swish_group_norm");
  a = sample();
  a["addend"] = at::randn({13}, at::kDouble);
  same("linear_add_swish_group_norm");
  a = sample();
  a["num_groups"] = 5;
  same("linear_add_swish_group_norm");
}

}  // namespace
}  // namespace tailor::test
