// The words in which the pass talks about graphs.
#include "passes/graph.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir.h"

namespace tailor::test {
namespace {

torch::jit::Node* find(const std::shared_ptr<Graph>& graph, const std::string& kind) {
  for (torch::jit::Node* node : graph->nodes())
    if (node->kind().toQualString() == kind) return node;
  throw std::logic_error("no " + kind);
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
  EXPECT_EQ(which(is_constant_one), "001100");
}

TEST(Names, OfAttributesAndValues) {
  const auto graph = graph_of(net("y = self.linear(x); z = y + 1.0; return z"));
  torch::jit::Node* linear = find(graph, "aten::linear");
  EXPECT_EQ(attribute_path(linear->input(1)), "w");
  EXPECT_EQ(name_of(linear->input(1)), "w");
  EXPECT_EQ(attribute_path(linear->output()), "");
  EXPECT_EQ(name_of(linear->output()), linear->output()->debugName());

  Module child("Child"), parent("Parent");
  child.register_parameter("weight", at::randn({12, 5}, at::kDouble), false);
  parent.register_module("gemm", child);
  parent.define("def forward(self, x):\n    return torch.linear(x, self.gemm.weight)\n");
  const auto below = graph_of(parent);
  EXPECT_EQ(name_of(find(below, "aten::linear")->input(1)), "gemm.weight");
}

TEST(SourceLine, SkipsTorchNn) {
  const auto graph = graph_of(net("z = x * 2.0; y = self.linear(z); return y"));
  EXPECT_EQ(source_line(find(graph, "aten::linear")), "net.py:3");  // not torch/nn/parts.py
  EXPECT_EQ(source_line(find(graph, "aten::mul")), "net.py:2");
  EXPECT_EQ(describe(find(graph, "aten::mul")), "`mul` in net.py:2");
  EXPECT_EQ(describe(graph->return_node()), "the method's result");
}

// `2.0 * x` is TorchScript of torch's own, in a file that no user has.
TEST(SourceLine, SkipsTorchsOwnScript) {
  const auto graph = graph_of(net("z = 2.0 * x; return z"));
  EXPECT_EQ(source_line(find(graph, "aten::mul")), "net.py:2");
}

TEST(SourceLine, NoneInParsedIr) {
  const auto graph = parse("graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n  return (%y)");
  EXPECT_EQ(describe(find(graph, "aten::relu")), "`relu`");
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
