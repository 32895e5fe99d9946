// Writes to what shares memory with an operand, though torch's alias analysis does not know.
#include "passes/aliases.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "ir.h"

namespace tailor::test {
namespace {

TORCH_LIBRARY(tailor_test, library) {
  library.def("second(Tensor first, Tensor second) -> Tensor");
  library.def("in_dict(Dict(str, Tensor) all) -> Tensor");
  library.def("in_lists(Tensor?[][] all) -> Tensor");
  library.def("in_tuple((int, Tensor) all) -> Tensor");
}

// What torch's schemas call new.
TEST(Unwritten, OpsThatReturnWhatTheyWereGiven) {
  const auto is_new = [](const std::string& body) {
    const Module module = net(body);
    const auto graph = graph_of(module);
    fuse_graph(graph);
    EXPECT_TRUE(has(*graph, "tailor::unwritten")) << body;
    EXPECT_EQ(difference(graph_of(module), graph, module), "") << body;
  };
  for (const char* same :
       {"torch.dropout(self.scale, 0.5, False)", "self.scale.type_as(x)", "torch.atleast_1d(self.scale)",
        "torch.einsum('i->i', [self.scale])", "torch.atleast_1d([self.scale, self.b])[0]",
        "torch.dropout(self.scale.view(-1), 0.5, False).type_as(x).view(12)", "torch.dequantize(self.scale)",
        "torch.broadcast_tensors([self.scale, self.b])[0]", "self.scale.sum_to_size([12])"}) {
    is_new(std::string("t = ") + same +
           "; y = self.linear(x) * self.scale; t.add_(1.5); return self.batch_norm(y) + t.sum()");
    is_new(std::string("t = ") + same + "; y = self.linear(x) * t; self.scale.add_(1.5); return self.batch_norm(y)");
  }
  is_new(
      "t = torch.zeros_like(self.scale); t.set_(self.scale); y = self.linear(x) * self.scale; t.add_(1.5); return "
      "self.batch_norm(y) + t.sum()");
  is_new(
      "t = torch.dropout(x, 0.5, False); y = self.linear(x); t.add_(1.5); return self.batch_norm(y * self.scale) + "
      "t.sum()");
  is_new(
      "t = torch.dropout(self.w, 0.5, False)\ny = self.linear(x)\nfor i in range(2):\n    t[0] = 9.0\nreturn "
      "self.batch_norm(y * self.scale) + t.sum()");
}

TEST(Unwritten, OpsOfOthersMayReturnWhatTheyWereGiven) {
  for (const std::string same :
       {"  %same : Tensor = tailor_test::second(%z, %x)\n",
        "  %k : str = prim::Constant[value=\"k\"]()\n  %d : Dict(str, Tensor) = prim::DictConstruct(%k, %x)\n"
        "  %same : Tensor = tailor_test::in_dict(%d)\n",
        "  %l : Tensor?[] = prim::ListConstruct(%x)\n  %d : Tensor?[][] = prim::ListConstruct(%l)\n"
        "  %same : Tensor = tailor_test::in_lists(%d)\n",
        "  %d : (int, Tensor) = prim::TupleConstruct(%one, %x)\n  %same : Tensor = tailor_test::in_tuple(%d)\n"}) {
    const auto graph = parse(R"(graph(%v : Tensor, %w : Tensor, %b : Tensor, %f : float):
  %one : int = prim::Constant[value=1]()
  %x : Tensor = aten::relu(%v)
  %z : Tensor = aten::relu(%v)
)" + same + R"(  %y : Tensor = aten::linear(%x, %w, %b)
  %t : Tensor = aten::add_(%same, %one, %one)
  %g : Tensor = aten::sigmoid(%y)
  %p : Tensor = aten::mul(%g, %f)
  %r : Tensor = aten::add(%p, %y, %one)
  return (%r))");
    const auto sites = fuse_graph(graph);
    ASSERT_EQ(sites.size(), 1u);
    EXPECT_TRUE(sites[0].fused) << sites[0].reason;
    EXPECT_TRUE(has(*graph, "tailor::unwritten")) << same;
  }
}

// Neither what a turn of a loop begins with, which is what the one before ended with, nor what a loop hands on without a turn
// does torch's analysis see.
TEST(Unwritten, WhatLoopsCarry) {
  const auto chain = [](const std::string& indent) {
    return indent + "y = self.linear(x) * s\n" + indent + "t.add_(1.5)\n" + indent + "r = self.batch_norm(y)\n";
  };
  const std::string begin = "s = self.scale * 1.0\nt = torch.zeros_like(s)\nu = torch.ones_like(s)\nr = x\n";
  const std::string three = "for i in range(3):\n", none = "for i in range(x.dim() - x.dim()):\n", in = "    ";
  const std::string end = "return r + t.sum()";
  for (const std::string& body :
       {begin + three + chain(in) + "    t = s\n" + end, begin + three + chain(in) + "    t = u\n    u = s\n" + end,
        begin + three + "    t = u\n    u = s\n" + chain("") + end,
        begin + "t = s\n" + none + "    t = torch.zeros_like(s)\n" + chain("") + end,
        begin + three + "    for j in range(2):\n" + chain(in + in) + "        t = u\n    u = s\n" + end,
        begin + three + chain(in) + "    t = u[3:6]\n    u = s\n" + end,
        begin + "a = [t]\n" + three + "    t = a[0]\n" + chain(in) + "    a = [s]\n" + end}) {
    const Module module = net(body);
    const auto graph = graph_of(module);
    fuse_graph(graph);
    EXPECT_EQ(difference(graph_of(module), graph, module), "") << body;
  }
  const auto sites = fuse_graph(
      graph_of(net(begin + "y = self.linear(x) * s\nk = x.dim()\nwhile k > 0:\n    t.add_(1.5)\n    t = s\n    k -= 1\n"
                           "return self.batch_norm(y) + t.sum()")));
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_EQ(sites[0].reason, "`add_` in net.py:9 may write to an operand of the chain");
}

// A tensor that goes round without coming near an operand is no obstacle, nor asked at run time.
TEST(Unwritten, WhatLoopsCarryElsewhere) {
  const auto graph = graph_of(net(
      "t = torch.zeros_like(self.scale)\ns = self.scale * 1.0\nr = x\nfor i in range(3):\n    y = self.linear(x) * s\n"
      "    t.add_(1.5)\n    r = self.batch_norm(y)\n    t = t + r.sum()\nreturn r + t.sum()"));
  EXPECT_TRUE(fuse_graph(graph).at(0).fused);
  EXPECT_FALSE(has(*graph, "tailor::unwritten"));
}

// What was put into a container that may hold anything comes out as who knows what.
TEST(Unwritten, WhatMayBeAnything) {
  const std::string chain = "y = self.linear(x) * t\n";
  const std::string write = "if isinstance(b, Tensor):\n    b.add_(1.5)\n";
  const std::string end = "return self.batch_norm(y)";
  const std::vector<at::Tensor> x = {at::linspace(-1, 1, 35, at::kDouble).view({7, 5})};
  const std::string tensor = "t = self.scale * 1.0\n";
  for (const std::string& body :
       {tensor + "a = annotate(List[Any], [3, t])\n" + chain + "b = a[1]\n" + write + end,
        tensor + "a: List[Any] = []\na.append(t)\n" + chain + "b = a[0]\n" + write + end,
        tensor + "a: Dict[str, Any] = {}\na['t'] = t\n" + chain + "b = a['t']\n" + write + end,
        tensor + "a = annotate(List[Any], [[t]])\n" + chain +
            "b = a[0]\nif isinstance(b, List[Tensor]):\n    b[0].add_(1.5)\n" + end,
        "def touch(self, a: Tuple[Tensor, Any]):\n    b = a[1]\n    " +
            std::string("if isinstance(b, Tensor):\n        b.add_(1.5)\n    return 1\n") +
            "def forward(self, x):\n    t = self.scale * 1.0\n    y = self.linear(x) * t\n    n = self.touch((x, t))\n"
            "    return self.batch_norm(y) * n",
        "a = annotate(List[Any], [self.scale])\nt = self.scale\n" + chain + "b = a[0]\n" + write + end}) {
    const Module module = net(body);
    const auto graph = graph_of(module);
    fuse_graph(graph);
    EXPECT_EQ(difference(run(graph_of(module), module, x), run(graph, module, x)), "") << body;
  }
}

// Its caller may have put an operand in.
TEST(Unwritten, GivenAsAnything) {
  const auto graph = graph_of(
      net("def forward(self, x, a: List[Any]):\n    y = self.linear(x)\n    b = a[0]\n    if isinstance(b, Tensor):\n"
          "        b.add_(1.5)\n    return self.bn(y * self.scale)"));
  const auto sites = fuse_graph(graph);
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_EQ(sites[0].reason, "`add_` in net.py:5 may write to an operand of the chain");
}

// What goes by in such a container is no obstacle.
TEST(Unwritten, WhatMayBeAnythingAndIsNotWrittenTo) {
  const auto graph =
      graph_of(net("a: List[Any] = []\na.append(x)\ny = self.linear(x) * self.scale\na.append(3)\n"
                   "return self.batch_norm(y) * len(a)"));
  const auto sites = fuse_graph(graph);
  EXPECT_TRUE(sites.at(0).fused) << sites.at(0).reason;
}

}  // namespace
}  // namespace tailor::test
