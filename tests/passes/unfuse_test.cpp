// What unfuse gives back, as whole graphs: the formula's own calls, at the places where the author had them. That each
// spelling computes the same afterwards is asserted beside its rewriting, in rewrite_test.cpp and prove_test.cpp.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/passes/constant_pooling.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <map>

#include "ir.h"
#include "passes/graph.h"
#include "passes/lines.h"

namespace tailor::test {
namespace {

void expect_unfused(const std::string& fused, const std::string& wanted) {
  const auto graph = graph_of(net(fused));
  std::vector<Site> sites;
  ASSERT_TRUE(unfuse_graph(graph, sites, "forward"));
  graph->lint();
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_FALSE(sites[0].fused);
  EXPECT_EQ(sites[0].reason, "unfused");
  EXPECT_EQ(text(graph), text(graph_of(net(wanted))));
}

TEST(Unfuse, EveryRule) {
  expect_unfused("return self.mul_bn(x)", "return self.batch_norm(self.linear(x) * self.scale)");
  expect_unfused("return self.sigmoid_mul_add(x)", "y = self.linear(x); return torch.sigmoid(y) * self.factor + y");
  expect_unfused("return self.add_swish_gn(x)", "return self.group_norm(self.swish(self.linear(x) + self.scale))");
  expect_unfused("return self.swish_add_gn(x)", "return self.group_norm(self.swish(self.linear(x)) + self.scale)");
  expect_unfused("return self.bn_add_div_swish(x)",
                 "return self.swish((self.batch_norm(self.linear(x)) + self.one) / self.factor)");
  expect_unfused("return self.gn_swish_mul_swish(x)",
                 "return self.swish(self.swish(self.group_norm(self.linear(x))) * self.scale)");
}

TEST(Unfuse, EveryOverload) {
  expect_unfused(
      "return tailor.linear_mul_batch_norm(x, self.w, None, self.scale, None, None, self.mean, self.var, 0.001, False)",
      "return torch.batch_norm(torch.linear(x, self.w, None) * self.scale, None, None, self.mean, self.var, False, "
      "0.0, "
      "0.001, False)");
  expect_unfused("return tailor.linear_sigmoid_mul_add(x, self.w, self.b, self.one)",
                 "y = self.linear(x); return torch.sigmoid(y) * self.one + y");
  expect_unfused(
      "return tailor.linear_batch_norm_add_div_swish(x, self.w, self.b, self.gamma, self.beta, self.mean, self.var, "
      "0.001, True, self.one, self.scale)",
      "return self.swish((torch.batch_norm(self.linear(x), self.gamma, self.beta, self.mean, self.var, False, 0.0, "
      "0.001, "
      "True) + self.one) / self.scale)");
  expect_unfused(
      "return tailor.linear_batch_norm_add_div_swish(x, self.w, self.b, self.gamma, self.beta, self.mean, self.var, "
      "0.001, True, self.one, 2)",
      "return self.swish((torch.batch_norm(self.linear(x), self.gamma, self.beta, self.mean, self.var, False, 0.0, "
      "0.001, "
      "True) + self.one) / 2)");
}

// From the fused graph back to the author's: nothing of the guards is left behind, and the parts stand where they stood.
void expect_round_trip(const std::string& body) {
  const auto graph = graph_of(net(body));
  fuse_graph(graph);
  std::vector<Site> sites;
  ASSERT_TRUE(unfuse_graph(graph, sites, "forward")) << body;
  ASSERT_NO_THROW(graph->lint()) << body;
  EXPECT_EQ(text(graph), text(graph_of(net(body)))) << body;
}

TEST(Unfuse, RoundTrips) {
  for (const char* body :
       {"return self.bn(self.linear(x) * self.scale)", "return self.bn(torch.linear(x, self.w) * self.scale)",
        "return self.gn(self.swish(self.linear(x) + self.scale))",
        "return self.swish((self.bn(self.linear(x)) + self.one) / self.factor)",
        "return self.batch_norm(torch.addmm(self.b, x, self.w.t()) * self.scale)",
        "return self.batch_norm((x @ self.w.t() + self.b).mul_(self.scale))",
        "return self.batch_norm((self.b + torch.linear(x, self.w)) * self.scale)",
        "return self.batch_norm(torch.linear(x, self.w).add_(self.b) * self.scale)",
        "y = x @ self.w.t() + self.b; z = y.size(0) + 1; return self.batch_norm(self.scale * y), z",
        "y = self.linear(x); self.other.add_(1.0); return self.batch_norm(y * self.scale)",
        "y = self.linear(x); n = y.size(0); z = y * self.scale; return self.batch_norm(z), z.dim() + n"})
    expect_round_trip(body);
}

// silu rounds once, v * sigmoid(v) twice: who wrote which computes with it again.
TEST(Unfuse, SpellingsOfSwishAndOrder) {
  for (const char* body :
       {"return self.group_norm(torch.silu(self.linear(x) + self.scale))",
        "return self.gn(torch.silu(self.scale + self.linear(x)))",
        "return self.group_norm(self.scale + torch.silu(self.linear(x)))",
        "y = self.linear(x); return self.gn(torch.sigmoid(y) * y + self.scale)",
        "return torch.silu((self.batch_norm(self.linear(x)) + self.one) / self.factor)",
        "return torch.silu((self.one + self.bn(self.linear(x))) / self.factor)",
        "return torch.silu(self.scale * torch.silu(self.group_norm(self.linear(x))))",
        "return self.swish(torch.silu(self.gn(self.linear(x))) * self.scale)",
        "return torch.silu(self.swish(self.group_norm(self.linear(x))) * self.scale)",
        "return self.gn(torch.silu(x @ self.w.t() + self.b + self.scale))",
        "return self.bn(self.scale * self.linear(x))", "return self.batch_norm(self.scale * self.linear(x))"})
    expect_round_trip(body);
}

TEST(Unfuse, InBranchesLoopsAndForks) {
  const std::string body =
      "def part(self, x):\n    return self.batch_norm(self.linear(x) * self.scale)\ndef forward(self, x):\n    r = "
      "torch.wait(fork(self.part, x))\n    for i in range(2):\n        if i > 0:\n            r = "
      "self.batch_norm(torch.linear(r, self.square) * self.scale)\n    return r";
  expect_round_trip(body);
}

// As torch leaves it in a file that it has compiled: without the result, and without the author's spelling beside the op.
TEST(Unfuse, WhereNobodyReadsTheResult) {
  for (const std::string linear : {"(x @ self.w.t() + self.b)", "(self.b + torch.linear(x, self.w))"}) {
    const std::string body = "y = self.batch_norm(" + linear + " * self.scale); return x";
    const auto graph = graph_of(net(body));
    fuse_graph(graph);
    torch::jit::EliminateDeadCode(graph);
    ASSERT_NE(text(graph).find(" = prim::If("), std::string::npos);
    std::vector<Site> sites;
    ASSERT_TRUE(unfuse_graph(graph, sites, "forward"));
    graph->lint();
    EXPECT_EQ(sites.size(), 1u);
    EXPECT_EQ(text(graph), text(graph_of(net(body))));
  }
}

// What a file may say in a check, and no rewriting ever did: the graph is sound afterwards, and the op undone.
TEST(Unfuse, ChecksOfAnotherHand) {
  const std::string name = "'linear_add_swish_group_norm'";
  for (const std::string& said : std::vector<std::string>{
           name + ", 99, 'linear'", name + ", 4, 'linear silu:3'", name + ", -1, ''", name + ", x.dim(), 'linear'",
           name + ", 3, str(x.dim())", "str(x.dim()), 3, 'linear silu:x'", "'none', 9223372036854775807, ':'"}) {
    for (const std::string& told :
         {said + ", self.scale", said, "annotate(List[Optional[Tensor]], [self.scale]), " + said,
          "annotate(List[Optional[Tensor]], []), " + said}) {
      const auto graph = graph_of(net("z, shape = tailor.check(x, self.w, self.b, " + told +
                                      "); n = shape.dim(); gamma = self.gamma * 1.0; return "
                                      "tailor.linear_add_swish_group_norm(z, self.w, self.b, self.scale, 3, gamma, "
                                      "self.beta, 0.001, True), n"));
      std::vector<Site> sites;
      ASSERT_TRUE(unfuse_graph(graph, sites, "forward")) << told;
      ASSERT_NO_THROW(graph->lint()) << told;
      EXPECT_EQ(sites.size(), 1u) << told;
      EXPECT_FALSE(has(*graph, "tailor::linear_add_swish_group_norm")) << told;
      ASSERT_NO_THROW(graph->copy()) << told;
    }
  }
}

// Of the chain only a shape is read: torch has dropped its op, and the check writes out the steps up to its own.
TEST(Unfuse, ChecksWhoseChainNobodyReads) {
  for (const char* told :
       {"'linear_mul_batch_norm', 2, '', self.scale", "'linear_mul_batch_norm', 2, '', None, self.one",
        "annotate(List[Optional[Tensor]], [self.scale]), 'linear_mul_batch_norm', 2, ''",
        "annotate(List[Optional[Tensor]], [None]), 'linear_mul_batch_norm', 2, ''"}) {
    const bool is_number = std::string(told).find("None") != std::string::npos;
    const auto graph =
        graph_of(net("z, shape = tailor.check(x, self.w, self.b, " + std::string(told) + "); return shape.dim()"));
    std::vector<Site> sites;
    ASSERT_TRUE(unfuse_graph(graph, sites, "forward")) << told;
    graph->lint();
    const char* wanted =
        is_number ? "return (self.linear(x) * 1.0).dim()" : "return (self.linear(x) * self.scale).dim()";
    EXPECT_EQ(text(graph), text(graph_of(net(wanted)))) << told;
  }
}

// Of what a guard reads torch makes one constant, if there are equal ones; it goes with the guard, once.
TEST(EqualConstants, AreLetGoOfOnce) {
  for (const char* body : {"return self.batch_norm(self.linear(x).mul_(self.scale))",
                           "return self.batch_norm(self.scale * self.linear(x))",
                           "y = torch.linear(x, self.w); return (y.sigmoid() * self.factor).add_(y)"}) {
    const Module module = net(body);
    const auto graph = graph_of(module);
    fuse_graph(graph);
    torch::jit::ConstantPooling(graph);
    std::vector<Site> sites;
    ASSERT_TRUE(unfuse_graph(graph, sites, "forward"));
    graph->lint();
    EXPECT_FALSE(has(*graph, "tailor::"));
    EXPECT_EQ(difference(graph_of(module), graph, module), "");
  }
}

// The If of a spelling, as a file may have it and no rewriting made it: left alone, and it computes what it did.
TEST(Unfuse, ChoicesOfAnotherHand) {
  const std::string choice = "if tailor.uniform(x, self.w, self.b, False, False, self.scale):\n    z = ";
  const std::string op = "self.mul_bn(x)";
  const std::string spelled = "self.batch_norm(torch.addmm(self.b, x, self.w.t()) * self.scale)";
  for (const std::string& body :
       std::vector<std::string>{choice + spelled + "\nelse:\n    z = " + op + "\nreturn z",
                                choice + op + "\n    n = 1\nelse:\n    z = " + spelled + "\n    n = 2\nreturn z, n"}) {
    const Module module = net(body);
    const auto graph = graph_of(module);
    const auto as_it_was = graph->copy();
    std::vector<Site> sites;
    ASSERT_NO_THROW(unfuse_graph(graph, sites, "forward")) << body;
    ASSERT_NO_THROW(graph->lint()) << body;
    const std::vector<at::Tensor> inputs = {at::ones({7, 5}, at::kDouble)};
    const Outcome before = run(as_it_was, module, inputs);
    const Outcome after = run(graph, module, inputs);
    EXPECT_EQ(before.error, after.error) << body;
    ASSERT_EQ(before.values.size(), after.values.size()) << body;
    for (std::size_t i = 0; i < before.values.size(); ++i)
      EXPECT_TRUE(at::allclose(before.values[i], after.values[i], 1e-9, 1e-9)) << body;
  }
}

// Where freezing has changed the author's spelling, so that it is no chain any more, what stands in its place is taken for it.
TEST(Unfuse, TakesTheFilesWordForTheSpelling) {
  const auto graph =
      graph_of(net("if tailor.uniform(x, self.w, self.b, False, False, self.scale):\n    z = self.mul_bn(x)\n"
                   "else:\n    z = torch.relu(x)\nreturn z"));
  std::vector<Site> sites;
  ASSERT_TRUE(unfuse_graph(graph, sites, "forward"));
  graph->lint();
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_EQ(sites[0].rule, "linear_mul_batch_norm");
  EXPECT_EQ(text(graph), text(graph_of(net("return torch.relu(x)"))));
}

// torch has found the op elsewhere, which computes the same.
TEST(Unfuse, ChoicesWhoseOpStandsBeforeThem) {
  const auto graph =
      graph_of(net("a = self.mul_bn(x)\nif tailor.uniform(x, self.w, self.b, False, False, self.scale):\n"
                   "    z = a\nelse:\n    z = torch.relu(x)\nreturn z"));
  std::vector<Site> sites;
  ASSERT_TRUE(unfuse_graph(graph, sites, "forward"));
  graph->lint();
  EXPECT_FALSE(has_tailor_op(graph->block())) << text(graph);
  EXPECT_EQ(graph->outputs()[0]->node()->kind(), c10::aten::relu) << text(graph);
}

// Freezing makes one of two ops that differ in nothing but what stands behind them, and of equal checks.
TEST(Unfuse, GivesEachChainItsOwn) {
  const auto unfused = [](const std::string& body) {
    const auto graph = graph_of(net(body));
    std::vector<Site> sites;
    EXPECT_TRUE(unfuse_graph(graph, sites, "forward"));
    graph->lint();
    EXPECT_EQ(sites.size(), 2u);
    EXPECT_FALSE(has_tailor_op(graph->block()));
    return text(graph);
  };
  const std::string norm = "self.swish(self.group_norm(self.linear(x))) * self.scale";
  EXPECT_EQ(unfused("a = self.gn_swish_mul_swish(x); b = tailor.as_silu(a, 'linear silu:5'); return a, b"),
            text(graph_of(net("a = self.swish(" + norm + "); b = self.silu(" + norm + "); return a, b"))));
  const std::string said = "'linear_add_swish_group_norm', 3, 'linear silu:3'";
  const std::string op = "tailor.linear_add_swish_group_norm(v, self.w, self.b, self.scale, ";
  for (const std::string& told : {said + ", self.scale", "annotate(List[Optional[Tensor]], [self.scale]), " + said})
    EXPECT_EQ(unfused("v, m = tailor.check(x, self.w, self.b, " + told + "); a = " + op +
                      "3, self.gamma, self.beta, 0.001, True); b = " + op + "3, None, None, 0.001, True); return a, b"),
              text(graph_of(net("y = self.silu(self.linear(x) + self.scale); a = self.group_norm(y); "
                                "z = self.silu(self.linear(x) + self.scale); "
                                "return a, torch.group_norm(z, 3, None, None, 0.001, True)"))));
}

// A check has the line of the part for which it stands; other calls lead to their linear, or where that will not do nowhere.
TEST(Unfuse, Lines) {
  for (const UnknownLine unknown : {UnknownLine::of_linear, UnknownLine::none}) {
    const auto graph = graph_of(net("y = self.linear(x); y = y * self.scale; y = self.bn(y); return y"));
    fuse_graph(graph);
    std::vector<Site> sites;
    unfuse_graph(graph, sites, "forward", unknown);
    std::map<std::string, std::string> lines;
    for (const torch::jit::Node* node : graph->nodes()) lines[node->kind().toUnqualString()] = source_line(node);
    EXPECT_EQ(lines["linear"], "net.py:2");
    EXPECT_EQ(lines["mul"], "net.py:3");
    EXPECT_EQ(lines["batch_norm"], unknown == UnknownLine::none ? "" : "net.py:2");
  }
}

TEST(Unfuse, NothingToDo) {
  const auto graph = graph_of(net("return self.bn(self.linear(x) * self.scale)"));
  const std::string before = text(graph);
  std::vector<Site> sites;
  EXPECT_FALSE(unfuse_graph(graph, sites, "forward"));
  EXPECT_TRUE(sites.empty());
  EXPECT_EQ(text(graph), before);
}

}  // namespace
}  // namespace tailor::test
