// What stands inside a chain and writes without saying so: forked calls, and norms that write their statistics.
#include "passes/effects.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ir.h"

namespace tailor::test {
namespace {

// A forked call writes while the chain runs.
TEST(Forks, ThatWriteToAnOperand) {
  const Module module = net(
      "def part(self, x):\n    self.w.mul_(2.0)\n    return x\ndef forward(self, x):\n    y = self.linear(x)\n    f = "
      "fork(self.part, x)\n    z = torch.wait(f)\n    return self.batch_norm(y * self.scale) + z.sum()");
  const auto graph = graph_of(module);
  fuse_graph(graph);
  EXPECT_EQ(difference(graph_of(module), graph, module), "");
}

// A chain around the wait for what `part` does.
std::string waiting(const std::string& part, const std::string& future = "fork(self.part, x)",
                    const std::string& wait = "torch.wait(f)") {
  return "def part(self, x):\n    " + part + "\ndef forward(self, x):\n    f = " + future +
         "\n    y = self.linear(x)\n    z = " + wait + "\n    return self.batch_norm(y * self.scale) + z.sum()";
}

// What was forked before the chain has done what it does where it is waited for.
TEST(Forks, AreWaitedFor) {
  const char* const reads = "return torch.relu(x)";
  for (const std::string& body :
       {waiting("self.w.mul_(2.0)\n    return x"), waiting("self.scale = self.one\n    return x"),
        waiting("if self.training:\n        self.b.zero_()\n    return x"),
        waiting("torch.set_grad_enabled(False)\n    return x"),
        waiting("return torch.batch_norm(x, None, None, self.other, None, self.training, 0.1, 0.001, True)"),
        waiting("return fork(self.swish, x)", "fork(self.part, x)", "torch.wait(torch.wait(f))"),
        waiting(reads, "[fork(self.part, x)]", "torch.wait(f[0])")}) {  // which of them is another question
    const auto sites = fuse_graph(graph_of(net(body)));
    ASSERT_EQ(sites.size(), 1u) << body;
    EXPECT_TRUE(sites[0].reason.ends_with(" stands inside the chain and may do anything")) << body << sites[0].reason;
    EXPECT_TRUE(sites[0].reason.starts_with("`wait` in net.py:")) << body << sites[0].reason;
  }
}

TEST(Forks, ThatOnlyReadAreNoObstacle) {
  for (const std::string& body :
       {waiting("return torch.relu(x)"),
        waiting("if self.training:\n        x = x + self.one\n    return x * self.factor"),
        waiting("return torch.batch_norm(x, None, None, None, None, False, 0.1, 0.001, True)"),
        waiting("return torch.mm(x, x)"),  // raises before the statistics are written
        std::string("def forward(self, x):\n    y = self.linear(x)\n    f = fork(self.swish, x)\n    y = "
                    "self.batch_norm(y * self.scale)\n    return y + torch.wait(f).sum()")}) {
    Module module = net(body);
    const auto graph = graph_of(module);
    EXPECT_TRUE(fuse_graph(graph).at(0).fused) << body;
    // No input that is refused before the wait: torch may let what runs beside outlive what it needs.
    const std::vector<at::Tensor> inputs{at::randn({7, 5}, at::kDouble)};
    for (const bool training : {true, false}) {
      module.setattr("training", training);
      EXPECT_EQ(difference(run(graph_of(module), module, inputs), run(graph, module, inputs)), "") << body;
    }
  }
}

// A batch norm in training mode writes its statistics, which its schema does not say.
TEST(Statistics, AreWrittenByAnotherNormInTheGap) {
  for (const char* body :
       {"a = self.linear(x) * self.mean; e = self.batch_norm(x @ self.w2.t()); f = torch.batch_norm(a, None, None, "
        "None, "
        "None, True, 0.1, 0.001, True); return e, f",
        "a = self.linear(x) * self.scale; b = self.linear2(x) * self.mean; e = self.batch_norm(a); f = "
        "torch.batch_norm(b, None, None, None, None, True, 0.1, 0.001, True); return e, f",
        "a = self.linear(x) * self.scale; e = self.batch_norm(a); b = self.linear2(x) * self.mean; f = "
        "torch.batch_norm(b, None, None, None, None, True, 0.1, 0.001, True); return e, f"}) {
    const Module module = net(body);
    const auto graph = graph_of(module);
    fuse_graph(graph);
    EXPECT_EQ(difference(graph_of(module), graph, module), "") << body;
  }
}

// A place that a tuple has not, a device that nobody knows, a gradient that is not there, a length of what has none.
TEST(Noticeable, WhatMayBeRefused) {
  const auto graph = parse(std::string(head) + R"(  %two : int = prim::Constant[value=2]()
  %cpu : str = prim::Constant[value="cpu"]()
  %banana : str = prim::Constant[value="banana"]()
  %t : (int, int) = prim::TupleConstruct(%one, %two)
  %n : int = aten::dim(%x)
  %q0 : int = prim::TupleIndex(%t, %one)
  %q1 : int = prim::TupleIndex(%t, %n)
  %q2 : int = aten::get_autocast_dtype(%cpu)
  %q3 : int = aten::get_autocast_dtype(%banana)
  %g : Tensor = prim::grad(%x)
  %q4 : Device = prim::device(%x)
  %q5 : Device = prim::device(%g)
  %p : Tensor = aten::mm(%x, %w)
  %y : Tensor = aten::linear(%x, %w, %b)
  %z : Tensor = aten::add(%p, %s, %one)
  %q6 : int = aten::len(%z)
  %q7 : int = aten::len(%y)
  %l : Tensor[] = prim::ListConstruct(%x)
  %i : int[] = prim::ListConstruct(%one)
  %q8 : bool = aten::eq(%i, %i)
  %q9 : bool = aten::eq(%l, %l)
  %c : complex = aten::Complex(%one, %two)
  %k : Union(complex, float) = prim::unchecked_cast(%c)
  %r : Scalar = aten::item(%s)
  %q10 : bool = aten::lt(%one, %two)
  %q11 : bool = aten::lt(%k, %one)
  %q12 : bool = aten::gt(%one, %two)
  %q13 : bool = aten::gt(%r, %one)
  %o : Tensor = aten::mul(%s, %s, %p)
  %z2 : Tensor = aten::sigmoid(%z)
  %q14 : int = aten::len(%z2)
  %q15 : int = aten::len(%o)
  return (%x))");
  std::string noticed;
  for (const Node* node : graph->nodes()) {
    const std::string kind = node->kind().toUnqualString();
    if (kind == "TupleIndex" || kind == "get_autocast_dtype" || kind == "device" || kind == "len" || kind == "eq" ||
        kind == "lt" || kind == "gt")
      noticed += is_noticeable(node) ? '1' : '0';
  }
  EXPECT_EQ(noticed, "0101010101010101");
}

}  // namespace
}  // namespace tailor::test
