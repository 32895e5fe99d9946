// What keeps torch's executor from moving things past an op, and past what has an effect.
#include "passes/fences.h"

#include <gtest/gtest.h>

#include "ir.h"
#include "passes/forks.h"

namespace tailor::test {
namespace {

std::shared_ptr<Graph> graph_with(const std::string& nodes) {
  return parse(std::string(head) + "  %half : float = prim::Constant[value=0.5]()\n" + nodes + "  return (%x)");
}

void add_kinds(Block* top, std::string& kinds) {
  for (const Node* node : top->nodes()) {
    if (node->kind() == c10::prim::Constant) continue;
    kinds += is_tailor(node, "fence") ? "| " : std::string(node->kind().toUnqualString()) + " ";
    for (Block* inner : const_cast<Node*>(node)->blocks()) {
      kinds += "( ";
      add_kinds(inner, kinds);
      kinds += ") ";
    }
  }
}

// A graph's nodes and their fences, without which it lacks some, and is what it was.
std::string fenced(const std::shared_ptr<Graph>& graph) {
  const std::string before = text(graph->copy());
  std::string kinds;
  add_kinds(graph->block(), kinds);
  const std::string bare = kinds;
  const bool lacks = lacks_fences(graph->block());
  for (int turn = 0; turn < 2; ++turn) {
    add_fences(graph->block());
    graph->lint();
    EXPECT_FALSE(lacks_fences(graph->block()));
    kinds.clear();
    add_kinds(graph->block(), kinds);
    EXPECT_EQ(lacks, kinds != bare) << kinds;
  }
  drop_fences(graph->block());
  EXPECT_EQ(text(graph), before);
  return kinds;
}

std::string batch_norm(const std::string& to, const std::string& training) {
  return "  %" + to + " : Tensor = aten::batch_norm(%x, %none, %none, %s, %s, " + training + ", %half, %half, %yes)\n";
}

constexpr const char* op = "  %z : Tensor = tailor::linear_sigmoid_mul_add(%x, %w, %none, %s)\n";
constexpr const char* sum = "  %a : Tensor = aten::add(%x, %s, %one)\n";

TEST(Fences, StandOnBothSides) {
  EXPECT_EQ(fenced(graph_with(sum)), "add ");
  EXPECT_EQ(fenced(graph_with(op)), "| linear_sigmoid_mul_add | ");
  EXPECT_EQ(fenced(graph_with("  %k : Tensor, %h : Tensor = tailor::check(%x, %w, %b, %s)\n")), "| check | ");
  EXPECT_EQ(fenced(graph_with(std::string(sum) + op + batch_norm("n", "%yes"))),
            "add | linear_sigmoid_mul_add | batch_norm | ");
  EXPECT_EQ(fenced(graph_with(batch_norm("n", "%yes") + sum + batch_norm("m", "%yes"))),
            "| batch_norm | add | batch_norm | ");
}

TEST(Fences, AreForWhatHasEffects) {
  const auto dropout = [](const std::string& train) {
    return "  %d : Tensor = aten::dropout(%x, %half, " + train + ")\n";
  };
  const std::string no = "  %no : bool = prim::Constant[value=0]()\n";
  const std::string asked = "  %q : bool = aten::__not__(%yes)\n";
  EXPECT_EQ(fenced(graph_with(no + batch_norm("n", "%no"))), "batch_norm ") << "it writes nothing";
  EXPECT_EQ(fenced(graph_with(no + dropout("%no"))), "dropout ") << "it draws nothing";
  EXPECT_EQ(fenced(graph_with(dropout("%yes"))), "| dropout | ");
  EXPECT_EQ(fenced(graph_with(asked + dropout("%q") + batch_norm("n", "%q"))), "__not__ | dropout | batch_norm | ");
  EXPECT_EQ(fenced(graph_with("  %r : Tensor = aten::bernoulli(%x, %none)\n")), "| bernoulli | ");
  EXPECT_EQ(fenced(graph_with("  %r : Tensor = aten::add_(%x, %s, %one)\n")), "| add_ | ");
  EXPECT_EQ(fenced(graph_with("  %l : int[] = prim::ListConstruct(%one)\n  %m : int[] = aten::append(%l, %one)\n")),
            "ListConstruct | append | ");
  EXPECT_EQ(fenced(graph_with("  %r : Tensor = aten::linear(%x, %w, %b)\n")), "linear ");
}

TEST(Fences, AreAroundBlocksToo) {
  const std::string begin = "  %r : Tensor = prim::If(%yes)\n    block0():\n";
  const std::string end = "      -> (%x)\n    block1():\n      -> (%s)\n";
  EXPECT_EQ(fenced(graph_with(begin + "    " + batch_norm("n", "%yes") + end + sum)),
            "| If ( | batch_norm | ) ( ) | add ");
  EXPECT_EQ(fenced(graph_with(begin + "    " + sum + end + op)), "If ( add ) ( ) | linear_sigmoid_mul_add | ");
}

TEST(Fences, AreInWhatIsForked) {
  const auto graph =
      graph_of(net("def part(self, x):\n    return self.batch_norm(x)\ndef forward(self, x):\n    f = fork(self.part, "
                   "x)\n    return torch.wait(f)"));
  EXPECT_TRUE(lacks_fences(graph->block()));
  add_fences(graph->block());
  EXPECT_FALSE(lacks_fences(graph->block()));
  const auto count = [](Block* top) {
    std::string kinds;
    add_kinds(top, kinds);
    return std::count(kinds.begin(), kinds.end(), '|');
  };
  EXPECT_EQ(count(graph->block()), 2);
  for_each_fork(graph->block(),
                [&](Node&, const std::shared_ptr<Graph>& forked) { EXPECT_EQ(count(forked->block()), 2); });
  drop_fences(graph->block());
  for_each_fork(graph->block(),
                [&](Node&, const std::shared_ptr<Graph>& forked) { EXPECT_EQ(count(forked->block()), 0); });
}

// Of what nobody reads torch leaves nothing else.
TEST(Fences, GoWithTheBranchThatTheyAreIn) {
  for (const bool raises : {false, true}) {
    const auto graph = graph_with(sum);
    Node* const branch = graph->create(c10::prim::If, {graph->insertConstant(true)}, 0);
    branch->insertBefore(graph->return_node());
    for (int side = 0; side < 2; ++side) branch->addBlock();
    branch->blocks()[0]->appendNode(graph->create(c10::Symbol::fromQualString("tailor::fence"), 0));
    if (raises) branch->blocks()[1]->appendNode(graph->create(c10::prim::Print, {graph->inputs()[0]}, 0));
    drop_fences(graph->block());
    EXPECT_EQ(has(*graph, "prim::If"), raises);
    EXPECT_FALSE(has(*graph, "tailor::fence"));
  }
}

// As where a method is called that was fused by itself.
TEST(Fences, StandInNobodysWay) {
  const auto graph = graph_of(net("y = self.linear(x); return torch.sigmoid(y) * self.scale + y"));
  graph->create(c10::Symbol::fromQualString("tailor::fence"), 0)->insertAfter(find(graph, "aten::linear"));
  EXPECT_TRUE(run_pass(graph, {}).sites.at(0).fused);
  EXPECT_FALSE(has(*graph, "tailor::check"));
}

TEST(Fences, AreForAttributes) {
  const auto graph = graph_of(net("self.one = self.scale; return x + self.one"));
  EXPECT_TRUE(lacks_fences(graph->block()));
  add_fences(graph->block());
  EXPECT_TRUE(is_tailor(find(graph, "prim::SetAttr")->prev(), "fence"));
}

// The pass puts them, and whoever looks at a graph has it without.
TEST(Fences, StandInWhatIsFused) {
  const auto graph = graph_of(net("y = self.linear(x); return torch.sigmoid(y) * self.scale + y"));
  run_pass(graph, {});
  EXPECT_TRUE(has(*graph, "tailor::fence"));
  EXPECT_FALSE(lacks_fences(graph->block()));
  EXPECT_FALSE(run_pass(graph, {}).changed);
  drop_fences(graph->block());
  EXPECT_TRUE(run_pass(graph, {}).changed) << "as of an older file";
  EXPECT_FALSE(lacks_fences(graph->block()));
  std::vector<Site> sites;
  EXPECT_TRUE(unfuse_graph(graph, sites, "forward"));
  EXPECT_FALSE(has(*graph, "tailor::fence"));
}

}  // namespace
}  // namespace tailor::test
