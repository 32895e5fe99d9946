// The ways in: the hooks that torch calls for a compiled module or function, the ops, and the executor's pre-pass. Python
// goes through the same doors in tests/python/doors_test.py.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/testing/hooks_for_testing.h>

#include "ir.h"

namespace tailor::test {
namespace {

constexpr const char* chain = "return self.bn(self.linear(x) * self.scale)";

c10::IValue call(const char* name, const c10::IValue& argument) {
  torch::jit::Stack stack{argument};
  c10::Dispatcher::singleton().findSchemaOrThrow((std::string("tailor::") + name).c_str(), "").callBoxed(stack);
  return stack.at(0);
}

TEST(Hooks, FuseACompiledModule) {
  Module module = net(chain);
  torch::jit::getEmitHooks().first(module);
  EXPECT_TRUE(needs_tailor(module));
}

TEST(Hooks, FuseACompiledFunction) {
  const auto unit = std::make_shared<torch::jit::CompilationUnit>();
  unit->define(
      std::nullopt,
      "def f(x, w, b, s):\n    return torch.batch_norm(torch.linear(x, w, b) * s, None, None, None, None, True, "
      "0.1, 0.001, True)\n",
      torch::jit::nativeResolver(), nullptr);
  torch::jit::Function& function = unit->get_function("f");
  torch::jit::getEmitHooks().second(torch::jit::StrongFunctionPtr(unit, &function));
  EXPECT_TRUE(has(*torch::jit::toGraphFunction(function).graph(), "tailor::linear_mul_batch_norm"));
}

TEST(Hooks, AreOffWhenAutoIs) {
  EXPECT_TRUE(automatic(false));
  Module module = net(chain);
  torch::jit::getEmitHooks().first(module);
  EXPECT_FALSE(needs_tailor(module));
  EXPECT_FALSE(automatic(true));  // the setting of before
}

TEST(Ops, FuseInspectUnfuse) {
  const Module module = net(chain);
  EXPECT_EQ(call("inspect", module._ivalue()).toStringRef(), inspect(module).json());
  EXPECT_FALSE(needs_tailor(module));
  EXPECT_NE(call("fuse_", module._ivalue()).toStringRef().find("\"fused\": true"), std::string::npos);
  EXPECT_TRUE(needs_tailor(module));
  EXPECT_NE(call("unfuse_", module._ivalue()).toStringRef().find("\"reason\": \"unfused\""), std::string::npos);
  EXPECT_FALSE(needs_tailor(module));
}

TEST(Ops, RefuseWhatIsNoModule) {
  for (const char* name : {"fuse_", "unfuse_", "inspect"}) {
    try {
      call(name, 3);
      FAIL() << name;
    } catch (const c10::TypeError& error) {
      EXPECT_NE(std::string(error.what_without_backtrace()).find(std::string("tailor::") + name), std::string::npos);
    }
  }
}

// Modules that came in unfused, under no_grad, from the call on which the executor optimises.
TEST(PrePass, FusesWhatTheExecutorRuns) {
  for (const bool on : {true, false}) {
    automatic(on);
    Module module = net(chain);
    const auto wanted = run(graph_of(module), module, {at::ones({7, 5}, at::kDouble).cumsum(1)});
    const std::int64_t before = calls_of("linear_mul_batch_norm");
    const at::NoGradGuard no_grad;
    for (int i = 0; i < 4; ++i) {
      Module copy = module.deepcopy();
      const auto got = copy.forward({at::ones({7, 5}, at::kDouble).cumsum(1)}).toTensor();
      EXPECT_TRUE(at::allclose(got, wanted.values[0]));
      EXPECT_EQ(copy.attr("tracked").toTensor().item<std::int64_t>(), 1);
      EXPECT_TRUE(at::allclose(copy.attr("mean").toTensor(), [&] {
        for (const auto& [name, value] : wanted.state)
          if (name == "mean") return value;
        return at::Tensor();
      }()));
    }
    EXPECT_EQ(calls_of("linear_mul_batch_norm") > before, on);
    EXPECT_FALSE(needs_tailor(module));  // the module's own graph stays
  }
  automatic(true);
}

}  // namespace
}  // namespace tailor::test
