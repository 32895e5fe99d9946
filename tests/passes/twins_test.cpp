// Two chains of which torch would make one op, where it would not make one of what was written.
#include "passes/twins.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ir.h"

namespace tailor::test {
namespace {

const std::string reason = "it computes what the chain up to ";
const std::string first = "y = self.linear(x); a = torch.sigmoid(y) * self.factor + y; ";
const std::string by_matmul = "z = x @ self.w.t() + self.b; ";

// How many of the chains fuse; those that do not must say why.
std::size_t fused(const std::string& body) {
  const auto graph = graph_of(net(body));
  std::size_t count = 0;
  for (const Site& site : fuse_graph(graph)) {
    if (site.fused)
      ++count;
    else
      EXPECT_EQ(site.reason.substr(0, reason.size()), reason) << body;
  }
  graph->lint();
  return count;
}

TEST(Twins, AreToldApart) {
  const std::string two = "b = torch.sigmoid(z) * self.factor + z; return a, b";
  EXPECT_EQ(fused(first + by_matmul + two), 1u);
  EXPECT_EQ(fused("k = torch.relu(x); y = torch.linear(k, self.w, self.b); a = torch.sigmoid(y) * self.factor + y; "
                  "r = torch.relu(x); z = r @ self.w.t() + self.b; " +
                  two),
            1u)
      << "torch makes one of what they read, too";
  EXPECT_EQ(fused("y = self.linear(x); a = torch.sigmoid(y).mul_(self.factor).add_(y); z = self.linear(x); "
                  "b = torch.sigmoid(z).mul_(self.factor).add_(z); return a, b"),
            1u)
      << "of what is written in place torch makes no one";
  EXPECT_EQ(fused("a = self.swish(self.swish(self.group_norm(self.linear(x))) * self.scale); "
                  "b = self.silu(self.swish(self.group_norm(self.linear(x))) * self.scale); return a, b"),
            1u);
  EXPECT_EQ(fused("a = self.frozen_bn(self.linear(x) * self.scale); b = self.frozen_bn(self.scale * self.linear(x)); "
                  "return a, b"),
            1u)
      << "a batch norm for inference";
}

TEST(Twins, AreNotWhatReadsSomethingElse) {
  EXPECT_EQ(fused(first + "z = x @ self.w2.t() + self.b; b = torch.sigmoid(z) * self.factor + z; return a, b"), 2u);
  EXPECT_EQ(fused(first + by_matmul + "b = torch.sigmoid(z) * 2.5 + z; return a, b"), 2u);
  EXPECT_EQ(
      fused(first + "v = x + 1.0; z = v @ self.w.t() + self.b; b = torch.sigmoid(z) * self.factor + z; return a, b"),
      2u);
  EXPECT_EQ(fused(first + "v = x + 1.0; v.relu_(); u = x + 1.0; u.relu_(); z = u @ self.w.t() + self.b; "
                          "b = torch.sigmoid(z) * self.factor + z; y = self.linear(v); c = torch.sigmoid(y) * "
                          "self.factor + y; return a, b, c"),
            3u)
      << "what is written to is never one";
  EXPECT_EQ(fused(first + "b = self.group_norm(self.swish(self.linear(x)) + self.scale); return a, b"), 2u);
}

TEST(Twins, OfOneSpellingTorchMakesOneByItself) {
  EXPECT_EQ(fused(first + "z = self.linear(x); b = torch.sigmoid(z) * self.factor + z; return a, b"), 2u);
}

// A check says how its chain was written, so that torch sees two ops that read different things.
TEST(Twins, AreNoneWhereAChecksWordsDiffer) {
  const std::string checked = "y = self.linear(x)\nassert x.dim() == 2\na = torch.sigmoid(y) * self.factor + y\n";
  const std::string again = "b = torch.sigmoid(z) * self.factor + z\nreturn a, b";
  EXPECT_EQ(fused(checked + "z = x @ self.w.t() + self.b\n" + again), 2u);
  EXPECT_EQ(fused(checked + "z = x @ self.w.t() + self.b\nassert x.dim() == 2\n" + again), 2u);
  EXPECT_EQ(fused(checked + "z = self.linear(x)\nassert x.dim() == 2\n" + again), 2u) << "torch makes one by itself";
}

// A second time, with the first one's op in the graph.
TEST(Twins, AreLeftAloneForEver) {
  const std::string in_place =
      "y = self.linear(x)\nassert x.dim() == 2\na = torch.sigmoid(y).mul_(self.factor).add_(y)\n"
      "z = self.linear(x)\nassert x.dim() == 2\nb = torch.sigmoid(z).mul_(self.factor).add_(z)\nreturn a, b";
  const std::string plain = first + by_matmul + "b = torch.sigmoid(z) * self.factor + z; return a, b";
  for (const std::string& body : {in_place, plain}) {
    const auto graph = graph_of(net(body));
    const auto count = [&] {
      const auto sites = fuse_graph(graph);
      return std::count_if(sites.begin(), sites.end(), [](const Site& site) { return site.fused; });
    };
    EXPECT_EQ(count(), 1) << body;
    const std::string text = graph->toString(false);
    EXPECT_EQ(count(), 1) << body;
    EXPECT_EQ(graph->toString(false), text) << body;
  }
}

TEST(Twins, InTheReport) {
  const auto sites =
      fuse_graph(graph_of(net(first + by_matmul + "b = torch.sigmoid(z) * self.factor + z; return a, b")));
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[0].reason, "");
  EXPECT_EQ(sites[1].rule, "linear_sigmoid_mul_add");
  EXPECT_EQ(
      sites[1].reason,
      reason + "`add` in net.py:3 computes, written in another way or in place, and torch would make one of the two");
}

// Each method was fused by itself, and whoever calls both has both ops. They come back in the formula's own way, and fuse again.
TEST(Twins, ThatWereCalled) {
  const std::string two = "b = tailor.as_silu(self.gn_swish_mul_swish(x), 'matmul:t silu:5'); return a, b";
  for (const bool changes : {false, true}) {
    const auto graph = graph_of(
        net("a = self.gn_swish_mul_swish(x)\n" + std::string(changes ? "torch.set_grad_enabled(False)\n" : "") + two));
    std::size_t count = 0;
    for (const Site& site : fuse_graph(graph)) count += site.fused ? 1 : 0;
    graph->lint();
    EXPECT_EQ(count, changes ? 1u : 2u) << "only where a mode changes between them";
  }
}

}  // namespace
}  // namespace tailor::test
