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
  const std::string off = "with no_grad():\n    y = self.linear(x)\n    a = torch.sigmoid(y) * self.factor + y\n";
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
  const std::string off = "with no_grad():\n    y = self.linear(v)\n    a = torch.sigmoid(y) * self.factor + y\n";
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

// What torch differentiates together it takes to want a gradient if the first to read it from outside sees it want one; and of a loop's
// turns, or of equal values, it makes one.
TEST(Twins, AreLeftAloneBesideWhatLeavesAnotherMode) {
  const std::string chain = "a = self.gn(self.swish(self.linear(x)) + self.scale)\n";
  const auto reason = [](int line) {
    return "`set_grad_enabled` in net.py:" + std::to_string(line) +
           " leaves another mode behind, and beside an op torch might lose gradients; `with torch.no_grad():` leaves "
           "none";
  };
  EXPECT_EQ(reason_of("torch.set_grad_enabled(False)\n" + chain + "return a"), reason(2));
  EXPECT_EQ(reason_of(chain + "if x.dim() == 2:\n    torch.set_grad_enabled(False)\nreturn a"), reason(4));
  EXPECT_EQ(reason_of("for i in range(2):\n    torch.set_grad_enabled(i > 0)\n" + chain + "return a"), reason(3));
  EXPECT_EQ(fused("torch.set_grad_enabled(False)\na = self.gn_swish_mul_swish(x)\nreturn a"), (Ops{0, 0, 0}))
      << "a method that was fused by itself";
  EXPECT_EQ(fused("with no_grad():\n    h = x * 2.0\n" + chain + "return a + h.sum()"), (Ops{1, 1, 0}));
  EXPECT_EQ(fused("with no_grad():\n    " + chain + "return a"), (Ops{1, 1, 0}));
  EXPECT_EQ(fused("h = torch.is_grad_enabled()\n" + chain + "return a, h"), (Ops{1, 1, 0}));
}

TEST(Twins, AreThoseAgainTheNextTime) {
  const std::string in_place =
      "y = self.linear(x)\nassert x.dim() == 2\na = torch.sigmoid(y).mul_(self.factor).add_(y)\n"
      "z = self.linear(x)\nassert x.dim() == 2\nb = torch.sigmoid(z).mul_(self.factor).add_(z)\nreturn a * 2.0, b * "
      "3.0";
  const std::string plain = first + by_matmul + "b = torch.sigmoid(z) * self.factor + z; return a * 2.0, b * 3.0";
  for (const std::string& mode : {std::string(), std::string("with no_grad():\n    h = x * 2.0\n")}) {
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
  EXPECT_EQ(fused("a = self.gn_swish_mul_swish(x)\nwith no_grad():\n    h = x * 2.0\n" + two), (Ops{2, 2, 2}))
      << "only where a mode changes between them";
}

}  // namespace
}  // namespace tailor::test
