// What a graph is rid of before chains are looked for in it.
#include "passes/normalise.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ir.h"
#include "passes/calls.h"
#include "passes/graph.h"

namespace tailor::test {
namespace {

const std::vector<at::Tensor> x = {at::linspace(-1, 1, 35, at::kDouble).view({7, 5})};

std::shared_ptr<Graph> inlined_forward(const Module& module) {
  return inlined_copy(*torch::jit::tryToGraphFunction(module.get_method("forward").function()));
}

// What asserting that a tensor is one leaves behind; of what may be none it says something.
TEST(Casts, ThatSayNothingGo) {
  const std::string chain =
      "  %m : Tensor = aten::mul(%u, %v)\n"
      "  %r : Tensor = aten::batch_norm(%m, %none, %none, %none, %none, %yes, %small, %small, %yes)\n  return (%r)";
  const std::string linear = "  %y : Tensor = aten::linear(%x, %w, %b)\n";
  for (const std::string cast : {"prim::unchecked_cast", "aten::_unwrap_optional"}) {
    const auto idle = parse(head + linear + "  %c : Tensor = " + cast + "(%y)\n  %u : Tensor = " + cast + "(%c)\n" +
                            "  %v : Tensor = " + cast + "(%s)\n" + chain);
    const auto sites = fuse_graph(idle);
    ASSERT_EQ(sites.size(), 1u);
    EXPECT_EQ(sites[0].reason, "") << cast;
    EXPECT_FALSE(has(*idle, cast));

    std::string inputs = head;
    inputs.replace(inputs.find("%s : Tensor)"), 12, "%s : Tensor?)");
    const auto of_an_optional =
        parse(inputs + "  %v : Tensor = " + cast + "(%s)\n  %u : Tensor = aten::linear(%x, %w, %b)\n" + chain);
    EXPECT_TRUE(fuse_graph(of_an_optional).at(0).fused) << cast;
    EXPECT_TRUE(has(*of_an_optional, cast));
  }
}

// Whether something is None, which its callee asks, is known where the caller gave a tensor, or nothing.
TEST(WhetherNone, IsAnsweredWhereItIsKnown) {
  const std::string part =
      "def part(self, x, s: Optional[Tensor]):\n  y = self.linear(x)\n  if s is not None:\n    y = y * s\n"
      "  return self.bn(y)\n";
  const std::string twice =
      "def part(self, x, s: Optional[Tensor]):\n  if s is None:\n    return self.bn(self.linear(x) * self.scale)\n"
      "  return self.bn(self.linear(x) * s)\n";
  struct Row {
    std::string body;
    std::size_t fused, sites;
  };
  const Row rows[] = {
      {part + "def forward(self, x):\n  return self.part(x, self.scale)\n", 1, 1},
      {part + "def forward(self, x):\n  return self.part(x, None)\n", 0, 1},
      {twice + "def forward(self, x):\n  return self.part(x, self.scale)\n", 1, 1},
      {twice + "def forward(self, x):\n  return self.part(x, None)\n", 1, 1},
      // One answer leads to another.
      {"def part(self, x, s: Optional[Tensor], t: Optional[Tensor], n: Optional[int]):\n  u: Optional[Tensor] = None\n"
       "  if not (s is None):\n    u = s\n  if u is not None and n is not None and n > 2 and t is None:\n"
       "    x = self.linear(x) * u\n  return self.bn(x)\n"
       "def forward(self, x):\n  return self.part(x, self.scale, None, 3)\n",
       1, 1},
      {"def part(self, x):\n  return self.linear(x), True\n"
       "def forward(self, x):\n  y, scales = self.part(x)\n  if scales:\n    y = y * self.scale\n  return self.bn(y)\n",
       1, 1},
      {"def part(self, x) -> Tuple[Tensor, Optional[Tensor]]:\n  return self.linear(x), self.scale\n"
       "def forward(self, x):\n  y, s = self.part(x)\n  if s is not None:\n    y = y * s\n  return self.bn(y)\n",
       1, 1},
      {"def part(self, x, s: Union[Tensor, float]):\n  y = self.linear(x)\n  if isinstance(s, Tensor):\n    y = y * s\n"
       "  return self.bn(y)\n"
       "def forward(self, x):\n  return self.part(x, self.scale)\n",
       1, 1},
      {"def part(self, x, s: Union[Tensor, List[Tensor]]):\n  if isinstance(s, Tensor):\n    return "
       "self.bn(self.linear(x) * s)\n"
       "  return self.bn(self.linear(x) * s[0])\n"
       "def forward(self, x, s: Union[Tensor, List[Tensor]]):\n  return self.part(x, s)\n",
       2, 2},
      // What the callee does not look at.
      {"def note(self, what: Any) -> int:\n  return 1\n"
       "def forward(self, x):\n  y = self.linear(x)\n  n = self.note(y)\n  return self.bn(y * self.scale) * n\n",
       1, 1},
      // Known where it is asked, and not where it was made.
      {part + "def forward(self, x, s: Optional[Tensor]):\n  assert s is not None\n  return self.part(x, s)\n", 1, 1},
      // An answer decides of a number.
      {"def part(self, x, s: Optional[Tensor]):\n  n = 3 if s is not None else 1\n  y = self.linear(x)\n"
       "  if n > 2:\n    y = y * self.scale\n  return self.bn(y)\n"
       "def forward(self, x):\n  return self.part(x, self.scale)\n",
       1, 1},
      // Of either branch something comes.
      {"def part(self, x, s: Optional[Tensor]):\n  y = self.linear(x)\n  if x.size(0) == 3:\n    s = self.addend\n"
       "  if s is not None:\n    y = y * s\n  return self.bn(y)\n"
       "def forward(self, x):\n  return self.part(x, self.scale)\n",
       1, 1},
      {part +
           "def forward(self, x, s: Optional[Tensor]):\n  if s is not None:\n    return self.part(x, s)\n  return x\n",
       1, 1},
      {part + "def forward(self, x, s: Optional[Tensor]):\n  return self.part(x, s)\n", 0, 1},
      {"def forward(self, x):\n  y: Optional[Tensor] = self.linear(x)\n  assert y is not None\n"
       "  return self.bn(y * self.scale)\n",
       1, 1},
      {"def part(self, x) -> Optional[Tensor]:\n  return self.linear(x)\n"
       "def forward(self, x):\n  y = self.part(x)\n  assert y is not None\n  return self.bn(y * self.scale)\n",
       1, 1},
  };
  for (const Row& row : rows) {
    const Module module = net(row.body);
    const auto graph = inlined_forward(module);
    const auto sites = fuse_graph(graph);
    ASSERT_EQ(sites.size(), row.sites) << row.body;
    const auto is_fused = [](const Site& site) { return site.fused; };
    EXPECT_EQ(static_cast<std::size_t>(std::count_if(sites.begin(), sites.end(), is_fused)), row.fused) << row.body;
    if (graph->inputs().size() > 2) continue;  // what is called with an Optional
    EXPECT_EQ(difference(run(graph_of(module), module, x), run(graph, module, x)), "") << row.body;
  }
}

// torch makes a constant of it, of a type that it has no constants of.
TEST(WhetherNone, OfNumbers) {
  for (const auto& [type, is_left] : {std::pair{"Union[int, float, None]", true},
                                      {"Optional[Tuple[float, Union[int, str]]]", false},
                                      {"Union[float, Tuple[float, int], None]", true},
                                      {"Union[Tensor, List[Tensor], None]", false}}) {
    const Module module =
        net(std::string("def part(self, x, a: ") + type + ") -> " + type +
            ":\n  for i in range(x.dim()):\n    if i == 5:\n      a = None\n  return a\n"
            "def forward(self, x):\n  a = self.part(x, None)\n  y = self.bn(self.linear(x) * self.scale)\n"
            "  if a is not None:\n    y = y + 1.0\n  return y\n");
    const auto graph = inlined_forward(module);
    const auto sites = fuse_graph(graph);
    ASSERT_EQ(sites.size(), 1u);
    EXPECT_EQ(sites[0].fused, !is_left) << type << ": " << sites[0].reason;
    if (is_left) {
      EXPECT_THAT(sites[0].reason, testing::StartsWith("None is given for a Union[")) << type;
      EXPECT_THAT(
          sites[0].reason,
          testing::EndsWith("in net.py:7, which torch could not read back from a file once the call is inlined"));
    }
    EXPECT_EQ(difference(run(graph_of(module), module, x), run(graph, module, x)), "") << type;
  }
}

}  // namespace
}  // namespace tailor::test
