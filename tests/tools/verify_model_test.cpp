#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "verify_net.h"

namespace tailor::tool {
namespace {

using torch::jit::Module;

Verdict compare_models(const std::string& original, const std::string& fused) {
  return verify_model(model(original), model(fused), {at::randn({16, 40})}, 0);
}

TEST(VerifyModel, AcceptsTheSameModel) {
  const auto verdict = compare_models(forward, forward);
  EXPECT_TRUE(verdict.ok) << verdict.message;
  EXPECT_EQ(verdict.message, "");
}

TEST(VerifyModel, SeesOutputsBuffersAndGradients) {
  const std::pair<const char*, const char*> changes[] = {
      {"self.scale\n", "output differs"},
      {"(self.scale.detach() + 0 * self.scale)\n", "the gradient of scale differs"},
      {"self.scale\n    self.mean.add_(1)\n", "mean after the call differs"},
  };
  for (const auto& [code, wanted] : changes) {
    std::string other = forward;
    const std::string old = "self.scale\n";
    other.replace(other.find(old), old.size(), code);
    if (std::string(wanted).starts_with("output")) other.replace(other.find("self.scale"), 10, "self.beta");
    const auto verdict = compare_models(forward, other);
    EXPECT_FALSE(verdict.ok) << code;
    EXPECT_TRUE(contains(verdict.message, wanted)) << verdict.message;
  }
}

// As whatever hangs in a list does, which is neither parameter nor buffer.
TEST(VerifyModel, SeesWhatHangsInAList) {
  const auto adds = [](const char* number) {
    auto module = scaled();
    c10::List<at::Tensor> list;
    list.push_back(at::ones({24}));
    module.register_attribute("held", c10::ListType::ofTensors(), list);
    module.define(std::string("def forward(self, x):\n    self.held[0].add_(") + number +
                  ")\n    return torch.linear(x, self.weight) + 0 * self.held[0]\n");
    return module;
  };
  const auto verdict = [&](const char* one, const char* other) {
    return verify_model(adds(one), adds(other), {at::randn({16, 40})}, 0);
  };
  EXPECT_TRUE(verdict("1", "1").ok) << verdict("1", "1").message;
  EXPECT_TRUE(contains(verdict("1", "2").message, "held.0 after the call differs")) << verdict("1", "2").message;
}

// A model that names a dtype does not run in float64. What is nothing but rounding may be right, and nobody can tell.
TEST(VerifyModel, SaysThatThereIsNoReferee) {
  const auto named = [](const std::string& scale) {
    return "def forward(self, x):\n    y = torch.linear(x.to(6), self.weight)\n    return y * " + scale +
           "\n";  // float32
  };
  EXPECT_TRUE(compare_models(named("2"), named("2.001")).ok);  // half of the digits
  const auto verdict = compare_models(named("2"), named("3"));
  EXPECT_FALSE(verdict.ok);
  EXPECT_TRUE(contains(verdict.message, " is allowed where float64 is no referee, in training")) << verdict.message;
}

TEST(VerifyModel, LooksIntoDictionariesAndTuples) {
  const auto nested = [](const std::string& value) {
    return "def forward(self, x):\n    y = torch.linear(x, self.weight)\n    return {\"a\": (y, [y * " + value +
           "])}, 3\n";
  };
  EXPECT_TRUE(compare_models(nested("2"), nested("2")).ok);
  const auto verdict = compare_models(nested("2"), nested("3"));
  EXPECT_FALSE(verdict.ok);
  EXPECT_TRUE(contains(verdict.message, "output[0][a][1][0] differs by ")) << verdict.message;
}

TEST(VerifyModel, MeasuresNumbersByTheTensorsBesideThem) {
  const auto with = [](const std::string& number) {
    return "def forward(self, x):\n    return torch.linear(x, self.weight), " + number + "\n";
  };
  EXPECT_EQ(compare_models(with("1e-9"), with("2e-9")).message, "");
  EXPECT_TRUE(contains(compare_models(with("1.0"), with("1.5")).message, "output[1] differs by 0.5"));
}

TEST(VerifyModel, GivesNumbersTheDigitsOfTheDtype) {
  const auto differs = [](at::ScalarType dtype) {
    const auto returning = [dtype](const std::string& number) {
      Module returns = model("def forward(self, x):\n    return " + number + "\n");
      returns.to(dtype);
      return returns;
    };
    return verify_model(returning("1.0"), returning("1.05"), {at::randn({16, 40}).to(dtype)}, 0).message;
  };
  EXPECT_EQ(differs(at::kBFloat16), "");
  EXPECT_EQ(differs(at::kHalf), "");
  EXPECT_TRUE(contains(differs(at::kFloat), "output differs by 0.05"));
}

// As a user's call runs them, and what `forward` names does not.
TEST(VerifyModel, RunsForwardHooks) {
  const auto hooked = [](const std::string& before, const std::string& after) {
    auto module = model("def forward(self, x: Tensor):\n    return torch.linear(x, self.weight)\n");
    module.define("def before(self, inputs: Tuple[Tensor]):\n    return (inputs[0]" + before + ",)\n");
    module.define("def after(self, inputs: Tuple[Tensor], output: Tensor):\n    return output" + after + "\n");
    module.type()->addForwardPreHook(&module.get_method("before").function());
    module.type()->addForwardHook(&module.get_method("after").function());
    return module;
  };
  const auto compare_with = [&](const Module& fused) {
    return verify_model(hooked("[:, :40]", " * 2"), fused, {at::randn({16, 41})}, 0);
  };
  const auto same = compare_with(hooked("[:, :40]", " * 2"));
  EXPECT_TRUE(same.ok) << same.message;
  for (const auto& other : {hooked("[:, 1:]", " * 2"), hooked("[:, :40]", " * 3")}) {
    const auto verdict = compare_with(other);
    EXPECT_FALSE(verdict.ok);
    EXPECT_TRUE(contains(verdict.message, "output differs by ")) << verdict.message;
  }
}

TEST(VerifyModel, DrawsTheSameDropoutInEveryRun) {
  const std::string dropping =
      "def forward(self, x):\n    return torch.dropout(torch.linear(x, self.weight), 0.5, self.training)\n";
  const auto verdict = compare_models(dropping, dropping);
  EXPECT_TRUE(verdict.ok) << verdict.message;
}

TEST(VerifyModel, SaysThatTheOriginalDoesNotRun) {
  const auto verdict = verify_model(model(), model(), {at::randn({16, 41})}, 0);
  EXPECT_FALSE(verdict.ok);
  EXPECT_TRUE(contains(verdict.message, "the original does not run on these inputs: ")) << verdict.message;
  EXPECT_TRUE(contains(verdict.message, "; forward takes (Tensor x): describe each with --input")) << verdict.message;
  EXPECT_TRUE(contains(verdict.message, "or neither where it cannot run here")) << verdict.message;
}

TEST(VerifyModel, SaysThatThereIsNoMemory) {
  const char* const code =
      "def forward(self, x):\n    return torch.linear(x, self.weight) + torch.zeros([1000000, 1000000])\n";
  const auto verdict = verify_model(model(code), model(code), {at::randn({16, 40})}, 0);
  EXPECT_FALSE(verdict.ok);
  EXPECT_EQ(verdict.message, "there is no memory to run the original on these inputs: describe smaller ones");
}

// torch puts the cause in the first line of its message, and the declaration in the last.
TEST(VerifyModel, SaysWhichArgumentDoesNotFit) {
  const char* const code = "def forward(self, x, n: int):\n    return torch.linear(x, self.weight) * n\n";
  const auto x = at::randn({16, 40});
  EXPECT_TRUE(verify_model(model(code), model(code), {x, 3}, 0).ok);
  const auto verdict = verify_model(model(code), model(code), {x, at::ones({})}, 0);
  EXPECT_FALSE(verdict.ok);
  EXPECT_TRUE(contains(verdict.message, "Expected a value of type 'int' for argument 'n'")) << verdict.message;
  EXPECT_TRUE(contains(verdict.message, "forward takes (Tensor x, int n)")) << verdict.message;
}

TEST(VerifyModel, WritesIntoNeitherModel) {
  const auto module = model();
  const auto before = module.attr("mean").toTensor().clone();
  EXPECT_TRUE(verify_model(module, module, {at::randn({16, 40})}, 0).ok);
  EXPECT_TRUE(at::equal(module.attr("mean").toTensor(), before));
  EXPECT_TRUE(module.attr("training").toBool());
}

}  // namespace
}  // namespace tailor::tool
