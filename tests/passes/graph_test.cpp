// The words in which the pass talks about graphs.
#include "passes/graph.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ir.h"

namespace tailor::test {
namespace {

TEST(Copy, IsTheSameGraph) {
  const auto graph =
      graph_of(net("h = x\nfor i in range(3):\n    if i > 1:\n        h = h * self.scale + 1\nreturn h, x"));
  EXPECT_EQ(text(copy_of(*graph)), text(graph));
}

// A shared constant comes in as many copies as its readers need, each before those who read it.
TEST(Copy, NoConstantHasManyReaders) {
  std::string code = "graph(%x.0 : Tensor, %c : bool):\n  %one : int = prim::Constant[value=1]()\n";
  for (int i = 0; i < 200; ++i) {
    const std::string from = "%x." + std::to_string(i);
    const std::string to = "%x." + std::to_string(i + 1);
    code += "  " + to + " : Tensor = prim::If(%c)\n    block0():\n      %y." + std::to_string(i) +
            " : Tensor = aten::add(" + from + ", %one, %one)\n      -> (%y." + std::to_string(i) +
            ")\n    block1():\n      -> (" + from + ")\n";
  }
  const auto graph = parse(code + "  return (%x.200)");
  const auto copy = copy_of(*graph);
  copy->lint();
  std::size_t uses = 0;
  std::size_t constants = 0;
  for (const torch::jit::Node* node : copy->nodes()) {
    if (node->kind() != c10::prim::Constant) continue;
    ++constants;
    uses += node->output()->uses().size();
    EXPECT_LE(node->output()->uses().size(), 64u);
  }
  EXPECT_EQ(uses, 400u);
  EXPECT_EQ(constants, 7u);
}

TEST(Readers, LookThroughProfiles) {
  const auto graph = parse(R"(graph(%x : Tensor):
  %a : Tensor = prim::profile(%x)
  %b : Tensor = prim::profile(%a)
  %c : Tensor = aten::relu(%b)
  %d : Tensor = aten::mul(%a, %x)
  return (%c, %d))");
  const auto all = readers(graph->inputs()[0]);
  ASSERT_EQ(all.size(), 3u);  // mul twice
  EXPECT_EQ(std::count(all.begin(), all.end(), find(graph, "aten::mul")), 2);
  EXPECT_EQ(std::count(all.begin(), all.end(), find(graph, "aten::relu")), 1);
  EXPECT_EQ(seen(find(graph, "aten::relu")->input(0)), graph->inputs()[0]);
}

TEST(IsAten, NamesAndInPlaceTwins) {
  const auto graph = parse(R"(graph(%x : Tensor, %y : Tensor, %b : bool):
  %a : Tensor = aten::mul(%x, %y)
  %c : Tensor = aten::mul_(%a, %y)
  %d : bool = aten::__and__(%b, %b)
  return (%c, %d))");
  EXPECT_TRUE(is_aten(find(graph, "aten::mul"), "mul"));
  EXPECT_FALSE(is_in_place(find(graph, "aten::mul")));
  EXPECT_TRUE(is_aten(find(graph, "aten::mul_"), "mul"));
  EXPECT_TRUE(is_in_place(find(graph, "aten::mul_")));
  EXPECT_FALSE(is_aten(find(graph, "aten::mul_"), "mul_"));
  EXPECT_FALSE(is_in_place(find(graph, "aten::__and__")));
  EXPECT_EQ(overload(find(graph, "aten::mul")), "Tensor");
}

TEST(Constants, FalseAndOne) {
  const auto graph = parse(R"(graph(%x : Tensor):
  %yes : bool = prim::Constant[value=1]()
  %no : bool = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %unit : float = prim::Constant[value=1.]()
  %two : int = prim::Constant[value=2]()
  return (%x))");
  std::vector<torch::jit::Value*> values;
  for (torch::jit::Node* node : graph->nodes()) values.push_back(node->output());
  const auto which = [&](bool (*is)(const torch::jit::Value*)) {
    std::string result;
    for (torch::jit::Value* value : values) result += is(value) ? '1' : '0';
    return result + (is(graph->inputs()[0]) ? '1' : '0');
  };
  EXPECT_EQ(which(is_constant_false), "010000");
  EXPECT_EQ(which(is_constant_one), "001000");
}

TEST(Names, OfAttributesAndValues) {
  const auto graph = graph_of(net("y = self.linear(x); z = y + 1.0; return z"));
  torch::jit::Node* linear = find(graph, "aten::linear");
  EXPECT_EQ(attribute_path(linear->input(1)), "w");
  EXPECT_EQ(describe(linear->input(1)), "`w`");
  EXPECT_EQ(attribute_path(linear->output()), "");
  EXPECT_EQ(describe(linear->output()), "`y`");  // not y.1

  Module child("Child"), parent("Parent");
  child.register_parameter("weight", at::randn({12, 5}, at::kDouble), false);
  parent.register_module("gemm", child);
  parent.define("def forward(self, x):\n    return torch.linear(x, self.gemm.weight)\n");
  const auto below = graph_of(parent);
  EXPECT_EQ(describe(find(below, "aten::linear")->input(1)), "`gemm.weight`");

  const auto unnamed = graph_of(net("return torch.relu(x + 1.0) * 2.0"));  // a number is no name, nor is a file's _3
  EXPECT_EQ(describe(find(unnamed, "aten::relu")->input(0)), "the result of `add` in net.py:2");
  EXPECT_EQ(describe(find(unnamed, "aten::mul")->input(1)), "a constant");
  find(unnamed, "aten::add")->output()->setDebugName("_3");
  EXPECT_EQ(describe(find(unnamed, "aten::relu")->input(0)), "the result of `add` in net.py:2");
}

// No user has written a ListConstruct.
TEST(Describe, InTheUsersWords) {
  const auto graph = graph_of(
      net("l = [x, x]\nif self.training:\n    x = x + 1.0\nfor i in range(2):\n    x = x + 1.0\nreturn x, l[0]"));
  EXPECT_EQ(describe(find(graph, "prim::If")), "the `if` in net.py:3");
  EXPECT_EQ(describe(find(graph, "prim::Loop")), "the loop in net.py:5");
  EXPECT_EQ(describe(find(graph, "prim::ListConstruct")), "a list for the subscript in net.py:7");  // it has no line
  EXPECT_EQ(describe(graph->return_node()->input(0)->node()), "the method's result");
  const auto mode =
      parse("graph(%m : Any):\n  %e : Any = prim::Enter(%m)\n  %o : Any = prim::Exit(%m, %m, %m, %m)\n  return ()");
  EXPECT_EQ(describe(find(mode, "prim::Enter")), "the beginning of a `with` block");
  EXPECT_EQ(describe(find(mode, "prim::Exit")), "the end of a `with` block");
}

TEST(ForEachBlock, ItselfFirst) {
  const auto graph = graph_of(net("for i in range(2):\n    if self.training:\n        x = x + 1.0\nreturn x"));
  std::vector<torch::jit::Block*> blocks;
  for_each_block(graph->block(), [&](torch::jit::Block* block) { blocks.push_back(block); });
  ASSERT_EQ(blocks.size(), 4u);
  EXPECT_EQ(blocks[0], graph->block());
  EXPECT_EQ(blocks[1]->owningNode()->kind(), c10::prim::Loop);
  EXPECT_EQ(blocks[2]->owningNode()->kind(), c10::prim::If);
}

}  // namespace
}  // namespace tailor::test
