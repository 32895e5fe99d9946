// The pass over graphs with more than one chain, blocks, forks and the executor's nodes; whose source lines its ops carry.
#include "passes/pass.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include "ir.h"
#include "passes/graph.h"
#include "passes/lines.h"

namespace tailor::test {
namespace {

struct Several {
  const char* name;
  const char* body;
  std::vector<const char*> reasons;  // by site, empty for a fused one

  friend void PrintTo(const Several& row, std::ostream* out) { *out << row.name; }
};

// Sorted: an op stands where its chain ended, and with it the site.
std::vector<std::string> reasons_of(const std::vector<Site>& sites) {
  std::vector<std::string> all;
  for (const Site& site : sites) all.push_back(site.rule + ": " + site.reason);
  std::sort(all.begin(), all.end());
  return all;
}

class Structure : public testing::TestWithParam<Several> {};

TEST_P(Structure, FusesAndComputesTheSame) {
  const Several& row = GetParam();
  const Module module = net(row.body);
  const auto graph = graph_of(module);
  const auto sites = fuse_graph(graph);
  ASSERT_EQ(sites.size(), row.reasons.size()) << graph->toString();
  for (std::size_t i = 0; i < sites.size(); ++i) {
    EXPECT_EQ(sites[i].reason, row.reasons[i]) << "site " << i;
    EXPECT_EQ(sites[i].fused, sites[i].reason.empty()) << "site " << i;
  }
  EXPECT_EQ(difference(graph_of(module), graph, module), "");

  const std::string once = graph->toString(false);
  const auto again = fuse_graph(graph);
  EXPECT_EQ(graph->toString(false), once);
  EXPECT_EQ(reasons_of(again), reasons_of(sites));

  std::vector<Site> undone;
  unfuse_graph(graph, undone, "forward");
  graph->lint();
  EXPECT_EQ(graph->toString(false).find("tailor::"), std::string::npos);
  EXPECT_EQ(difference(graph_of(module), graph, module), "") << "unfused";
}

const Several structures[] = {
    {"Stacked",
     "h = self.batch_norm(self.linear(x) * self.scale); return self.batch_norm(torch.linear(h, self.square) * "
     "self.other)",
     {"", ""}},
    {"StackedModules",
     "h = self.bn(self.linear(x) * self.scale); return self.gn(self.swish(torch.linear(h, self.square, self.b) + "
     "self.addend))",
     {"", ""}},
    {"StackedMatmuls",
     "h = self.batch_norm((x @ self.w.t() + self.b) * self.scale); return self.batch_norm((h @ self.square.t()) * "
     "self.other)",
     {"", ""}},
    {"StackedInPlace",
     "h = self.batch_norm(self.linear(x).mul_(self.scale)); return self.batch_norm(torch.linear(h, "
     "self.square).mul_(h))",
     {"", ""}},
    {"ResultIsAddend",
     "h = self.batch_norm(self.linear(x) * self.scale); return self.group_norm(self.swish(self.linear2(x) + h))",
     {"", ""}},
    {"ResultIsScaleAndInput",
     "h = self.batch_norm(self.linear(x) * self.scale); return self.batch_norm(torch.linear(h, self.square) * h)",
     {"", ""}},
    {"ResultIsWeight",
     "h = self.batch_norm(self.linear(x) * self.scale); return self.batch_norm(torch.linear(h[:, :12], h) * h.sum())",
     {"", ""}},
    {"Overlapping",
     "return self.group_norm(self.swish(self.linear(x) + self.linear2(x)))",
     {"", "what follows belongs to the chain of another linear, `linear` in net.py:2"}},
    {"OverlappingProducts",
     "return self.batch_norm(self.linear(x) * self.linear2(x))",
     {"", "what follows belongs to the chain of another linear, `linear` in net.py:2"}},
    {"Interleaved",
     "a = self.linear(x); b = self.linear2(x); c = a * self.scale; d = b * self.other; e = self.batch_norm(c); f = "
     "self.batch_norm(d); return e, f",
     {"", ""}},
    {"InterleavedOtherWay",
     "a = self.linear(x); b = self.linear2(x); d = b * self.other; c = a * self.scale; f = self.batch_norm(d); e = "
     "self.batch_norm(c); return e, f",
     {"", ""}},
    {"InterleavedModules",
     "a = self.linear(x); b = self.linear2(x); c = a * self.scale; d = b * self.other; e = self.bn(c); f = "
     "self.bn(d); return e, f",
     {"", ""}},
    {"SameInputTwice",
     "e = self.batch_norm(self.linear(x) * self.scale); f = self.batch_norm(self.linear(x) * self.scale); return e, f",
     {"", ""}},
    {"SharedTranspose",
     "t = self.w.t(); e = self.batch_norm(x @ t * self.scale); f = self.batch_norm((x @ t + self.b) * self.other); "
     "return "
     "e, f, t",
     {"", "`t` in net.py:2, the weight's transpose, stands apart from the product"}},
    {"BothBranches",
     "if x.size(0) > 3:\n    r = self.batch_norm(self.linear(x) * self.scale)\nelse:\n    r = "
     "self.batch_norm(self.linear2(x) * self.other)\nreturn r",
     {"", ""}},
    {"OneBranch",
     "r = x\nif self.training:\n    r = self.batch_norm(self.linear(x) * self.scale)\nreturn r + r.sum()",
     {""}},
    {"Loop",
     "h = torch.linear(x, self.w)\nfor i in range(3):\n    h = self.bn(torch.linear(h, self.square) * "
     "self.scale)\nreturn "
     "h",
     {"its result goes to the loop in net.py:3, with which no rule begins", ""}},
    {"LoopInBranchInLoop",
     "h = x @ self.w.t()\nfor i in range(2):\n    if i > 0:\n        for k in range(2):\n            h = "
     "self.group_norm("
     "self.swish(torch.linear(h, self.square) + self.scale))\nreturn h",
     {"its result goes to the loop in net.py:3, with which no rule begins", ""}},
    {"AllSixRules",
     "a = self.bn(self.linear(x) * self.scale); y = torch.linear(a, self.square); b = torch.sigmoid(y) * self.factor + "
     "y; "
     "c = self.gn(self.swish(torch.linear(b, self.square) + self.scale)); d = self.gn(self.swish(torch.linear(c, "
     "self.square)) + self.scale); e = self.swish((self.bn(torch.linear(d, self.square)) + self.one) / self.factor); "
     "return self.swish(self.swish(self.gn(torch.linear(e, self.square))) * self.scale)",
     {"", "", "", "", "", ""}},
    {"FusedAndNot",
     "a = self.linear(x); b = self.batch_norm(self.linear2(x) * self.scale); return torch.relu(a) + b",
     {"its result goes to `relu` in net.py:4, with which no rule begins", ""}},
    {"Fork",  // one after the other: both write the statistics
     "def part(self, x):\n    return self.batch_norm(self.linear(x) * self.scale)\ndef forward(self, x):\n    f = "
     "torch.wait(fork(self.part, x))\n    g = torch.wait(fork(self.part, x + 1.0))\n    return f, g",
     {"", ""}},
    {"Helpers",
     "def one(self, x):\n    return self.linear(x)\ndef two(self, y):\n    return y * self.scale\ndef forward(self, "
     "x):\n    "
     "return self.bn(self.two(self.one(x)))",
     {""}},
};
INSTANTIATE_TEST_SUITE_P(Pass, Structure, testing::ValuesIn(structures),
                         [](const auto& row) { return std::string(row.param.name); });

// Raw IR: what the executor and a tracer write, in which no TorchScript is spelled.
void expect_rewritten(const std::string& before, const std::string& after) {
  const auto graph = parse(head + before);
  const auto sites = fuse_graph(graph);
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_TRUE(sites[0].fused) << sites[0].reason;
  EXPECT_EQ(text(graph), text(parse(head + after)));
}

TEST(Ir, ProfiledValues) {
  expect_rewritten(R"(
  %y : Tensor = aten::linear(%x, %w, %b)
  %y.2 : Tensor = prim::profile(%y)
  %s.2 : Tensor = prim::profile(%s)
  %z : Tensor = aten::mul(%y.2, %s.2)
  %z.2 : Tensor = prim::profile(%z)
  %r : Tensor = aten::batch_norm(%z.2, %none, %none, %none, %none, %yes, %small, %small, %yes)
  %r.2 : Tensor = prim::profile(%r)
  return (%r.2))",
                   R"(
  %s.2 : Tensor = prim::profile(%s)
  %r : Tensor = tailor::linear_mul_batch_norm(%x, %w, %b, %s.2, %none, %none, %none, %none, %yes, %small, %small, %yes)
  %r.2 : Tensor = prim::profile(%r)
  return (%r.2))");
}

TEST(Ir, TracedAddmm) {
  expect_rewritten(R"(
  %t : Tensor = aten::t(%w)
  %y : Tensor = aten::linear(%x, %w, %none)
  %g : Tensor = aten::sigmoid(%y)
  %p : Tensor = aten::mul(%g, %s)
  %r : Tensor = aten::add(%p, %y, %one)
  return (%r, %t))",
                   R"(
  %t : Tensor = aten::t(%w)
  %r : Tensor = tailor::linear_sigmoid_mul_add(%x, %w, %none, %s)
  return (%r, %t))");
}

TEST(Ir, DeadReadersStayReaders) {
  const auto graph = parse(std::string(head) + R"(
  %y : Tensor = aten::linear(%x, %w, %b)
  %z : Tensor = aten::mul(%y, %s)
  %dead : Tensor = aten::relu(%y)
  %r : Tensor = aten::batch_norm(%z, %none, %none, %none, %none, %yes, %small, %small, %yes)
  return (%r))");
  const std::string before = text(graph);
  const auto sites = fuse_graph(graph);
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_EQ(sites[0].reason, "the result of `linear` is also read by `relu`");
  EXPECT_EQ(text(graph), before);
}

// The executor reads one value through many profile nodes: what was written is followed through all of them.
TEST(Ir, OverwrittenBehindAProfile) {
  const auto graph = parse(std::string(head) + R"(
  %y : Tensor = aten::linear(%x, %w, %b)
  %y.1 : Tensor = prim::profile(%y)
  %g : Tensor = aten::sigmoid_(%y.1)
  %p : Tensor = aten::mul(%g, %s)
  %y.2 : Tensor = prim::profile(%y)
  %r : Tensor = aten::add(%p, %y.2, %one)
  return (%r))");
  const auto sites = fuse_graph(graph);
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_EQ(sites[0].reason, "`add` reads the result of `sigmoid_`, the rule wants the result of `linear`");
}

TEST(Options, Rules) {
  const char* body =
      "a = self.batch_norm(self.linear(x) * self.scale); return self.group_norm(self.swish(self.linear2(x) + "
      "self.scale)) "
      "+ a";
  const auto graph = graph_of(net(body));
  const auto sites = fuse_graph(graph, {"linear_mul_batch_norm"});
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_TRUE(sites[0].fused);
  EXPECT_FALSE(sites[1].fused);
  EXPECT_EQ(sites[1].reason, "that rule was not asked for");
  EXPECT_FALSE(has(*graph, "tailor::linear_add_swish_group_norm"));
}

TEST(Options, WhatWasNotAskedFor) {
  const auto only = [](const char* body, const char* rule) {
    const auto sites = fuse_graph(graph_of(net(body)), {rule});
    return sites.at(0).rule + ": " + sites.at(0).reason;
  };
  EXPECT_EQ(only("return self.batch_norm(self.linear(x) * self.scale)", "linear_sigmoid_mul_add"),
            "linear_mul_batch_norm: that rule was not asked for");
  EXPECT_EQ(only("return torch.relu(self.linear(x) * self.scale)", "linear_sigmoid_mul_add"),
            ": its result goes to `mul` in net.py:2, with which no rule that was asked for begins");
  EXPECT_EQ(only("return torch.relu(self.linear(x))", "linear_sigmoid_mul_add"),
            ": its result goes to `relu` in net.py:2, with which no rule begins");
}

// Beside a chain that is fused already a linear is still left for the reason that its author can read in his own code.
TEST(Reasons, AreThoseOfTheGraphAsWritten) {
  struct Row {
    const char* body;
    const char* reason;  // the second time; of calls that are inside an op only the linear's line is known
  };
  for (const Row& row : {Row{"h = self.linear(x); return self.gn(self.swish(torch.linear(h, self.square)) + h)",
                             "linear_add_swish_group_norm: after `add` in net.py:3 the rule wants swish, found "
                             "`group_norm` of the chain that begins in net.py:3"},
                         Row{"h = self.linear(x); return self.batch_norm(torch.linear(h, self.square) * h)",
                             "linear_mul_batch_norm: the result of `linear` in net.py:2 is also read by `linear` in "
                             "net.py:3"},
                         Row{"h = self.linear(x); return self.batch_norm(torch.linear(x, self.w2).mul_(h))",
                             "linear_mul_batch_norm: `mul_` in net.py:3 writes to another value than the rule's"},
                         Row{"h = self.linear(x); return self.batch_norm(torch.linear(x, self.w2) * h)",
                             "linear_mul_batch_norm: what follows belongs to the chain of another linear, `linear` in "
                             "net.py:2"}}) {
    const auto graph = graph_of(net(row.body));
    fuse_graph(graph);
    for (int time = 0; time < 2; ++time) {
      const auto sites = fuse_graph(graph);
      ASSERT_EQ(sites.size(), 2u);
      const Site& left = sites[sites[0].fused];
      EXPECT_EQ(left.rule + ": " + left.reason, row.reason);
    }
  }
}

TEST(Result, SaysWhetherAnythingChanged) {
  const auto graph = graph_of(net("return self.bn(self.linear(x) * self.scale)"));
  EXPECT_TRUE(run_pass(graph, {}).changed);
  EXPECT_FALSE(run_pass(graph, {}).changed);
  EXPECT_FALSE(run_pass(graph_of(net("return torch.relu(self.linear(x))")), {}).changed);
  EXPECT_FALSE(run_pass(graph_of(net("return torch.relu(x)")), {}).changed);
  EXPECT_TRUE(run_pass(graph_of(net("f = fork(self.mul_part, x); return torch.wait(f)\n")), {}).changed);
}

TEST(Options, Specimens) {
  const Module module = net("return self.bn(self.linear(x) * self.scale)");
  const auto graph = graph_of(module);
  std::vector<Specimen> specimens;
  PassOptions options;
  options.specimens = &specimens;
  run_pass(graph, options);
  ASSERT_EQ(specimens.size(), 1u);
  std::vector<std::string> names;
  std::vector<at::Tensor> values;
  for (const Origin& origin : specimens[0].inputs) {
    names.push_back(origin.argument + " = " + origin.attribute);
    if (origin.attribute.empty()) values.push_back(at::randn({7, 5}, at::kDouble));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"input = ", "weight = w", "bias = b", "scale = scale",
                                             "norm_weight = gamma", "norm_bias = beta", "running_mean = mean",
                                             "running_var = var", "training = training"}));
  EXPECT_TRUE(has(*specimens[0].before, "aten::batch_norm"));
  EXPECT_TRUE(has(*specimens[0].after, "tailor::linear_mul_batch_norm"));
}

TEST(Options, SpecimensOfALinearWithoutBias) {
  const auto graph = graph_of(net("return self.bn(torch.linear(x, self.w) * self.scale)"));
  std::vector<Specimen> specimens;
  PassOptions options;
  options.specimens = &specimens;
  run_pass(graph, options);
  ASSERT_EQ(specimens.size(), 1u);
  ASSERT_GE(specimens[0].inputs.size(), 3u);
  EXPECT_EQ(specimens[0].inputs[2].argument, "scale");
  EXPECT_EQ(specimens[0].inputs[2].attribute, "scale");
}

// What asks at run time whether the op may stand for a spelling goes with it.
TEST(Options, SpecimensOfAGuardedSpelling) {
  for (const auto& [body, is_guarded] : {std::pair("y = self.linear(x); y *= self.scale; return self.bn(y)", true),
                                         std::pair("y = self.linear(x) * self.scale; return self.bn(y)", false)}) {
    std::vector<Specimen> specimens;
    PassOptions options;
    options.specimens = &specimens;
    run_pass(graph_of(net(body)), options);
    ASSERT_EQ(specimens.size(), 1u);
    ASSERT_EQ(specimens[0].guard != nullptr, is_guarded) << body;
    EXPECT_FALSE(has(*specimens[0].after, "tailor::uniform"));
    if (!is_guarded) continue;
    EXPECT_TRUE(has(*specimens[0].guard, "tailor::uniform"));
    EXPECT_FALSE(has(*specimens[0].guard, "tailor::linear_mul_batch_norm"));
    EXPECT_EQ(specimens[0].guard->inputs().size(), specimens[0].inputs.size());
  }
}

TEST(SourceLines, OfTheUser) {
  const auto graph = graph_of(net("h = x + 1.0; y = self.linear(h); y = y * self.scale; return self.bn(y)"));
  const auto sites = fuse_graph(graph);
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_EQ(sites[0].source, "net.py:3");
  for (torch::jit::Node* node : graph->nodes()) {
    const std::string kind = node->kind().toQualString();
    if (kind == "tailor::linear_mul_batch_norm") {
      EXPECT_EQ(source_line(node), "net.py:3") << *node;
    }
    if (kind == "tailor::check") {
      EXPECT_EQ(source_line(node), "net.py:4") << *node;  // whose error it raises
    }
  }
}

TEST(SourceLines, OfErrors) {
  const Module module = net("h = x + 1.0; y = self.linear(h); y = y * self.scale; return self.batch_norm(y)");
  const auto graph = graph_of(module);
  fuse_graph(graph);
  torch::jit::Stack stack{module._ivalue(), at::randn({7, 6}, at::kDouble)};
  try {
    torch::jit::Code code(graph, "forward");
    torch::jit::InterpreterState(code).run(stack);
    FAIL() << "nothing was raised";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("\"net.py\", line 3"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tailor::test
