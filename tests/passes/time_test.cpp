// What the pass costs at compile time. docs/pass-time.md has the measurements, up to a hundred thousand nodes.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <limits>

#include "ir.h"
#include "passes/graph.h"

namespace tailor::test {
namespace {

// Of the processor, for this thread: what else runs on the machine does not count.
double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::size_t nodes(Graph& graph) {
  std::size_t count = 0;
  for_each_block(graph.block(), [&](torch::jit::Block* block) {
    count += static_cast<std::size_t>(std::distance(block->nodes().begin(), block->nodes().end()));
  });
  return count;
}

struct Cost {
  std::size_t nodes;
  double seconds;
};

// `count` chains, with what a norm's module puts between their parts and a write to a tensor that all share.
Cost cost_of(int count) {
  std::string body = "h = x; written = torch.relu(x)";
  for (int i = 0; i < count; ++i)
    body += "; h = self.bn(torch.linear(h, self.square) * self.scale); h = torch.relu(h); written.add_(1.0)";
  const auto graph = graph_of(net(body + "; return h, written"));
  const std::size_t size = nodes(*graph);
  const double begin = seconds();
  const auto sites = run_pass(graph, {}).sites;
  const double taken = seconds() - begin;
  EXPECT_EQ(sites.size(), static_cast<std::size_t>(count));
  for (const Site& site : sites) EXPECT_TRUE(site.fused);
  return {size, taken};
}

TEST(Time, GrowsWithTheGraph) {
  cost_of(10);
  const Cost few = cost_of(50), many = cost_of(500);
  EXPECT_NEAR(static_cast<double>(many.nodes) / static_cast<double>(few.nodes), 10, 1);
  // Ten times the nodes; square would be a hundred times.
  EXPECT_LT(many.seconds, 30 * few.seconds + 0.5) << few.seconds << " s for " << few.nodes << " nodes";
}

// Measured: a tenth of a second and less. The best of a few runs, for a machine may be slow for a while.
TEST(Time, TenThousandNodesTakeUnderASecond) {
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 3 && best >= 1; ++run) {
    const Cost cost = cost_of(600);
    ASSERT_GE(cost.nodes, 10'000u);
    best = std::min(best, cost.seconds);
  }
  EXPECT_LT(best, 1.0);
}

double cost_of_body(const std::string& body) {
  const auto graph = graph_of(net(body));
  const double begin = seconds();
  const auto sites = run_pass(graph, {}).sites;
  const double taken = seconds() - begin;
  EXPECT_TRUE(sites.size() == 1 && sites[0].fused);
  return taken;
}

// Twenty times the questions; square would be four hundred times.
void expect_to_grow(double (*cost)(int), int few) {
  const double of_few = cost(few), of_many = cost(20 * few);
  EXPECT_LT(of_many, 60 * of_few + 0.5) << of_few << " s for a twentieth";
}

// Whether something is None, asked of what the answer before decided.
TEST(Time, GrowsWithQuestions) {
  const auto cost = [](int count) {
    std::string body = "def part(self, x, a: Optional[Tensor]):\n";
    for (int i = 0; i < count; ++i) body += "  b: Optional[Tensor] = None\n  if not (a is None):\n    b = x\n  a = b\n";
    body += "  return self.bn(self.linear(x) * self.scale) if a is not None else x\n";
    return cost_of_body(body + "def forward(self, x):\n  return self.part(x, x)\n");
  };
  expect_to_grow(cost, 100);
}

// What is handed on in a tuple from call to call, and asked about in each.
double cost_of_steps(int count, const std::string& state, const std::string& first, const std::string& step) {
  std::string body = "def step(self, x, t: " + state + ") -> Tuple[Tensor, " + state + "]:\n  a, k = t\n" + step +
                     "def forward(self, x):\n  t: " + state + " = " + first + "\n";
  for (int i = 0; i < count; ++i) body += "  x, t = self.step(x, t)\n";
  return cost_of_body(body + "  return self.bn(self.linear(x) * self.scale), t\n");
}

TEST(Time, GrowsWithTuplesThatAreMadeAnew) {
  expect_to_grow(
      [](int count) {
        return cost_of_steps(
            count, "Tuple[Optional[Tensor], Optional[int]]", "(x, None)",
            "  if a is not None:\n    x = x + a\n  if k is not None:\n    x = x + k\n  return x, (a, k)\n");
      },
      200);
}

TEST(Time, GrowsWithTuplesThatAreHandedOn) {
  expect_to_grow(
      [](int count) {
        return cost_of_steps(count, "Tuple[Optional[Tensor], Optional[int]]", "(x, None)",
                             "  if a is not None:\n    x = x + a\n  return x, t\n");
      },
      400);
}

TEST(Time, GrowsWithTruthsThatAreHandedOn) {
  expect_to_grow(
      [](int count) {
        return cost_of_steps(count, "Tuple[bool, Optional[int]]", "(True, None)",
                             "  if not a:\n    x = x + 1\n  return x, (a, k)\n");
      },
      400);
}

}  // namespace
}  // namespace tailor::test
