// Two chains of which torch would make one op, where it would not make one of what was written.
#include "passes/twins.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/passes/common_subexpression_elimination.h>

#include "ir.h"
#include "passes/graph.h"

namespace tailor::test {
namespace {

const std::string first = "y = self.linear(x); a = torch.sigmoid(y) * self.factor + y; ";
const std::string by_matmul = "z = x @ self.w.t() + self.b; ";

struct Ops {
  std::size_t fused = 0;
  std::size_t left = 0;  // once torch has made one of equal ones
  std::size_t words = 0;

  bool operator==(const Ops&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Ops& ops) {
  return out << ops.fused << " ops, of which torch leaves " << ops.left << ", with " << ops.words << " words";
}

std::size_t count_ops(Graph& graph) {
  std::size_t count = 0;
  for_each_block(graph.block(), [&](Block* block) {
    for (Node* node : block->nodes()) count += fused_chain(node) ? 1 : 0;
  });
  return count;
}

std::size_t count_words(const Graph& graph) {
  const std::string text = graph.toString(false);
  std::size_t count = 0;
  for (auto at = text.find(" apart:"); at != std::string::npos; at = text.find(" apart:", at + 1)) ++count;
  return count;
}

Ops ops_of(const std::shared_ptr<Graph>& graph) {
  fuse_graph(graph);
  graph->lint();
  Ops ops{count_ops(*graph), 0, count_words(*graph)};
  torch::jit::EliminateCommonSubexpression(graph);
  ops.left = count_ops(*graph);
  return ops;
}

Ops fused(const std::string& body) { return ops_of(graph_of(net(body))); }

// The reason of the site that was left alone.
std::string reason_of(const std::string& body) {
  for (const Site& site : fuse_graph(graph_of(net(body))))
    if (!site.fused) return site.reason;
  return "";
}

TEST(Twins, AreToldApart) {
  const std::string two = "b = torch.sigmoid(z) * self.factor + z; return a * 2.0, b * 3.0";
  EXPECT_EQ(fused(first + by_matmul + two), (Ops{2, 2, 1}));
  EXPECT_EQ(fused("k = torch.relu(x); y = torch.linear(k, self.w, self.b); a = torch.sigmoid(y) * self.factor + y; "
                  "r = torch.relu(x); z = r @ self.w.t() + self.b; " +
                  two),
            (Ops{2, 2, 1}))
      << "torch makes one of what they read, too";
  EXPECT_EQ(fused("y = self.linear(x); a = torch.sigmoid(y).mul_(self.factor).add_(y); z = self.linear(x); "
                  "b = torch.sigmoid(z).mul_(self.factor).add_(z); return a * 2.0, b * 3.0"),
            (Ops{2, 2, 1}))
      << "of what is written in place torch makes no one";
  EXPECT_EQ(fused("a = self.swish(self.swish(self.group_norm(self.linear(x))) * self.scale); "
                  "b = self.silu(self.swish(self.group_norm(self.linear(x))) * self.scale); return a * 2.0, b * 3.0"),
            (Ops{2, 2, 2}))
      << "a silu behind the op says it, too";
  EXPECT_EQ(fused("a = self.frozen_bn(self.linear(x) * self.scale); b = self.frozen_bn(self.scale * self.linear(x)); "
                  "return a * 2.0, b * 3.0"),
            (Ops{2, 2, 1}))
      << "a batch norm for inference";
  EXPECT_EQ(fused(first + by_matmul +
                  "b = torch.sigmoid(z) * self.factor + z; v = torch.mm(x, self.w.t()) + self.b; "
                  "c = torch.sigmoid(v) * self.factor + v; return a * 2.0, b * 3.0, c * 4.0"),
            (Ops{3, 3, 2}));
}

TEST(Twins, AreNotWhatReadsSomethingElse) {
  EXPECT_EQ(
      fused(first + "z = x @ self.w2.t() + self.b; b = torch.sigmoid(z) * self.factor + z; return a * 2.0, b * 3.0"),
      (Ops{2, 2, 0}));
  EXPECT_EQ(fused(first + by_matmul + "b = torch.sigmoid(z) * 2.5 + z; return a * 2.0, b * 3.0"), (Ops{2, 2, 0}));
  EXPECT_EQ(
      fused(
          first +
          "v = x + 1.0; z = v @ self.w.t() + self.b; b = torch.sigmoid(z) * self.factor + z; return a * 2.0, b * 3.0"),
      (Ops{2, 2, 0}));
  EXPECT_EQ(fused(first + "v = x + 1.0; v.relu_(); u = x + 1.0; u.relu_(); z = u @ self.w.t() + self.b; "
                          "b = torch.sigmoid(z) * self.factor + z; y = self.linear(v); c = torch.sigmoid(y) * "
                          "self.factor + y; return a * 2.0, b * 3.0, c * 4.0"),
            (Ops{3, 3, 0}))
      << "what is written to is never one";
  EXPECT_EQ(fused(first + "b = self.group_norm(self.swish(self.linear(x)) + self.scale); return a * 2.0, b * 3.0"),
            (Ops{2, 2, 0}));
}

TEST(Twins, OfOneSpellingTorchMakesOneByItself) {
  EXPECT_EQ(fused(first + "z = self.linear(x); b = torch.sigmoid(z) * self.factor + z; return a * 2.0, b * 3.0"),
            (Ops{2, 1, 0}));
}

// A check says how its chain was written, so that torch sees two ops that read different things.
TEST(Twins, AreNoneWhereAChecksWordsDiffer) {
  const std::string checked = "y = self.linear(x)\nassert x.dim() == 2\na = torch.sigmoid(y) * self.factor + y\n";
  const std::string again = "b = torch.sigmoid(z) * self.factor + z\nreturn a * 2.0, b * 3.0";
  EXPECT_EQ(fused(checked + "z = x @ self.w.t() + self.b\n" + again), (Ops{2, 2, 0}));
  EXPECT_EQ(fused(checked + "z = x @ self.w.t() + self.b\nassert x.dim() == 2\n" + again), (Ops{2, 2, 0}));
}

// There nobody foresees what torch makes one of: an unrolled loop's results, an optional, the elements of a list.
TEST(Twins, AreAllOfOneRuleWhereModesChange) {
  const std::string off =
      "torch.set_grad_enabled(False)\ny = self.linear(x)\na = torch.sigmoid(y) * self.factor + "
      "y\ntorch.set_grad_enabled(True)\n";
  const std::string tail = "torch.sigmoid(z) * self.factor + z\n";
  EXPECT_EQ(fused(off + "z = self.linear(x)\nb = " + tail + "return a * 2.0, b * 3.0"), (Ops{2, 2, 1}))
      << "in one spelling";
  EXPECT_EQ(fused(off + "h = x\nc = a\nfor i in range(2):\n    z = self.linear(h)\n    b = " + tail +
                  "    h = h * 2.0\n    c = c + b\nreturn a * 2.0, c"),
            (Ops{2, 2, 1}));
  EXPECT_EQ(fused(off + "z = torch.linear(x + 1.0, self.w2, self.b2)\nb = " + tail + "return a * 2.0, b * 3.0"),
            (Ops{2, 2, 1}));
  EXPECT_EQ(fused(off + "b = self.gn(self.swish(self.linear(x)) + self.scale)\nreturn a * 2.0, b * 3.0"),
            (Ops{2, 2, 0}))
      << "another rule";
}

// Freezing makes a constant of what a check says of constants, whatever its words.
TEST(Twins, ThatNoWordTellsApart) {
  const std::string off =
      "torch.set_grad_enabled(False)\ny = self.linear(v)\na = torch.sigmoid(y) * self.factor + y\n"
      "torch.set_grad_enabled(True)\n";
  const std::string again = "z = self.linear(v)\nb = torch.sigmoid(z) * self.factor + z\n";
  const std::string reason = "what it reads may be constants once the module is frozen,";
  EXPECT_TRUE(reason_of("v = self.w2\n" + off + again + "return a * 2.0, b * 3.0").starts_with(reason));
  EXPECT_TRUE(reason_of("v = torch.ones([x.dim(), 5], dtype=7)\n" + off + again + "return a * 2.0, b * 3.0")
                  .starts_with(reason))
      << "of what may be known beforehand";
  EXPECT_TRUE(reason_of("v = x\n" + off +
                        "b = a\nfor i in range(2):\n    z = self.linear(v)\n"
                        "    b = torch.sigmoid(z) * self.factor + z\n    v = self.w2\nreturn a * 2.0, b * 3.0")
                  .starts_with(reason))
      << "a loop that carries an attribute";
  EXPECT_TRUE(reason_of("v = x\nif x.size(0) > 3:\n    v = self.w2\n" + off + again + "return a * 2.0, b * 3.0")
                  .starts_with(reason))
      << "a branch that does";
  EXPECT_EQ(fused("v = x\nif x.size(0) > 3:\n    v = x + 1.0\n" + off + again + "return a * 2.0, b * 3.0"),
            (Ops{2, 2, 1}));
}

TEST(Twins, AreTheTurnsOfALoopThatLeavesAnotherMode) {
  const std::string turn = "    y = self.linear(x)\n    a = torch.sigmoid(y) * self.factor + y\n";
  const std::string reason = "it stands in the loop in net.py:3, a turn of which may leave another mode to the next";
  EXPECT_EQ(reason_of("a = x\nfor i in range(2):\n" + turn + "    torch.set_grad_enabled(False)\nreturn a"), reason);
  const std::string loop = "a = x\nfor i in range(2):\n    torch.set_grad_enabled(";
  EXPECT_EQ(fused(loop + "False)\n" + turn + "    torch.set_grad_enabled(True)\nreturn a"), (Ops{1, 1, 0}))
      << "each turn decides anew";
  EXPECT_EQ(reason_of(loop + "i > 0)\n" + turn + "return a"), reason);
  EXPECT_EQ(reason_of(loop + "False)\n    if i > 0:\n        torch.set_grad_enabled(True)\n" + turn + "return a"),
            reason);
  EXPECT_EQ(reason_of(loop + "False)\n    if i > 0:\n        if i > 1:\n            torch.set_grad_enabled(True)\n"
                             "        a = self.gn(self.swish(self.linear(x)) + self.scale)\nreturn a"),
            reason)
      << "what decides stands before what may change it";
  EXPECT_EQ(
      fused("a = x\nfor i in range(2):\n    a = self.sigmoid_mul_add(x)\n    torch.set_grad_enabled(False)\nreturn a"),
      (Ops{0, 0, 0}))
      << "a method that was fused by itself";
  EXPECT_EQ(fused("torch.set_grad_enabled(False)\na = x\nfor i in range(2):\n" + turn + "return a"), (Ops{1, 1, 0}));
}

// What torch differentiates together it takes to want a gradient if the first to read it from outside sees it want one.
TEST(Twins, ReadWhatIsComputedAgain) {
  const std::string of = "self.batch_norm(self.linear(x) * torch.exp(self.scale))\n";
  const std::string off = "torch.set_grad_enabled(False)\n", end = "return a * h";
  EXPECT_EQ(
      reason_of("h = torch.exp(self.scale).sum()\n" + off + "a = " + of + end),
      "what it reads, the result of `exp` in net.py:4, is computed before too, and torch would make one of the two, "
      "with gradients or without");
  EXPECT_EQ(fused("h = torch.exp(self.scale).sum()\na = " + of + end), (Ops{1, 1, 0})) << "no mode is left";
  EXPECT_EQ(fused(off + "h = torch.exp(self.scale).sum()\na = " + of + end), (Ops{1, 1, 0})) << "in one mode";
  EXPECT_EQ(fused("h = torch.exp(self.scale).sum()\n" + off + "torch.set_grad_enabled(True)\na = " + of + end),
            (Ops{1, 1, 0}))
      << "with gradients for certain";
  EXPECT_NE(
      reason_of("h = torch.exp(self.scale).sum()\n" + off + "torch.set_grad_enabled(x.dim() == 2)\na = " + of + end),
      "")
      << "who knows";
  EXPECT_NE(reason_of("h = torch.exp(self.scale).sum()\nif x.dim() == 2:\n    torch.set_grad_enabled(False)\na = " +
                      of + end),
            "")
      << "behind a branch";
  EXPECT_EQ(
      fused("h = torch.exp(self.scale).sum()\nif x.dim() == 2:\n    torch.set_grad_enabled(False)\n    h = h * 2.0\n"
            "    torch.set_grad_enabled(True)\na = " +
            of + end),
      (Ops{1, 1, 0}))
      << "behind one that switches them on again";
  EXPECT_EQ(fused("h = torch.exp(self.b).sum()\n" + off + "a = " + of + end), (Ops{1, 1, 0})) << "of something else";
  EXPECT_EQ(fused("h = " + of + off + "a = " + of + end), (Ops{2, 2, 1})) << "which an op before reads";
  EXPECT_EQ(fused("h = x.sum()\nif x.dim() == 2:\n    h = torch.exp(self.scale).sum()\n" + off + "a = " + of + end),
            (Ops{1, 1, 0}))
      << "and may not have been run";
  EXPECT_EQ(fused("h = torch.relu(x).sum()\n" + off + "a = self.sigmoid_mul_add(torch.relu(x))\n" + end),
            (Ops{0, 0, 0}))
      << "a method that was fused by itself";
}

TEST(Twins, AreThoseAgainTheNextTime) {
  const std::string in_place =
      "y = self.linear(x)\nassert x.dim() == 2\na = torch.sigmoid(y).mul_(self.factor).add_(y)\n"
      "z = self.linear(x)\nassert x.dim() == 2\nb = torch.sigmoid(z).mul_(self.factor).add_(z)\nreturn a * 2.0, b * "
      "3.0";
  const std::string plain = first + by_matmul + "b = torch.sigmoid(z) * self.factor + z; return a * 2.0, b * 3.0";
  for (const std::string& mode : {std::string(), std::string("torch.set_grad_enabled(False)\n")}) {
    for (const std::string& body : {in_place, plain}) {
      const auto graph = graph_of(net(mode + body));
      fuse_graph(graph);
      const std::string text = graph->toString(false);
      EXPECT_EQ(count_words(*graph), 1) << text;
      fuse_graph(graph);
      EXPECT_EQ(graph->toString(false), text);
      EXPECT_EQ(ops_of(graph), (Ops{2, 2, 1}));
    }
  }
}

// Each method was fused by itself, and whoever calls both has both ops. They come back in the formula's own way, and fuse again.
TEST(Twins, ThatWereCalled) {
  const std::string two = "b = tailor.as_silu(self.gn_swish_mul_swish(x), 'matmul:t silu:5'); return a * 2.0, b * 3.0";
  EXPECT_EQ(fused("a = self.gn_swish_mul_swish(x)\n" + two), (Ops{2, 1, 0}));
  EXPECT_EQ(fused("a = self.gn_swish_mul_swish(x)\ntorch.set_grad_enabled(False)\n" + two), (Ops{2, 2, 2}))
      << "only where a mode changes between them";
}

}  // namespace
}  // namespace tailor::test
