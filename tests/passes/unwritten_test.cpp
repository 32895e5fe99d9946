// How operands are held: under which conditions, and how that is known again.
#include "passes/unwritten.h"

#include <gtest/gtest.h>

#include <set>

#include "ir.h"

namespace tailor::test {
namespace {

TEST(Held, IsKnownForWhatItWas) {
  const auto graph = parse(R"(graph(%x : Tensor, %y : Tensor, %w : Tensor, %c : bool):
  %a : Tensor = tailor::unwritten(%x, %w)
  %b : Tensor, %d : Tensor = prim::If(%c)
    block0():
      %e : Tensor, %n : int = tailor::ahead(%a)
      %f : Tensor = tailor::unwritten(%e, %w)
      %g : Tensor = tailor::unwritten(%f, %y)
      %h : Tensor = tailor::unwritten(%y, %w)
      -> (%g, %h)
    block1():
      -> (%a, %y)
  %i : Tensor, %j : Tensor, %k : Tensor, %l : Tensor = prim::If(%c)
    block0():
      %m : Tensor = tailor::unwritten(%x, %w)
      %o : Tensor = tailor::unwritten(%y, %w)
      -> (%m, %o, %x, %x)
    block1():
      -> (%y, %y, %x, %y)
  return (%b, %d, %i, %j, %k, %l))");
  Value* const x = graph->inputs()[0];
  Value* const y = graph->inputs()[1];
  Node* const first = find(graph, "tailor::unwritten");
  std::vector<Value*> before;
  for (Value* output : graph->outputs()) before.push_back(before_held(output));
  EXPECT_EQ(before, (std::vector<Value*>{first->output(), y, nullptr, y, nullptr, nullptr}));
  EXPECT_EQ(before_held(first->output()), x);
  EXPECT_TRUE(holds_unwritten(first));
  EXPECT_TRUE(holds_unwritten(graph->outputs()[0]->node()));
  EXPECT_FALSE(holds_unwritten(graph->outputs()[2]->node()));
  EXPECT_FALSE(holds_unwritten(*graph->outputs()[0]->node()->blocks()[0]->nodes().begin()));
}

// Which of the `if`s around them hold operands: "" for none.
std::set<std::string> conditions_of_holding(const std::string& body) {
  const auto graph = graph_of(net(body));
  EXPECT_TRUE(fuse_graph(graph)[0].fused) << body;
  std::set<std::string> found;
  for_each_block(graph->block(), [&](Block* block) {
    const Node* branch = block->owningNode();
    for (const Node* node : block->nodes())
      if (is_tailor(node, "unwritten")) found.insert(branch ? describe(branch->input()) : "");
  });
  return found;
}

TEST(Unwritten, OnlyWhereTheConditionHolds) {
  using Found = std::set<std::string>;
  const std::string before = "two = x.dim() == 2; y = self.linear(x) * self.scale",
                    after = "\nreturn self.batch_norm(y)";
  const auto found = [&](const std::string& inside) { return conditions_of_holding(before + inside + after); };
  EXPECT_EQ(conditions_of_holding("return self.bn(self.linear(x) * self.scale)"), Found{"`training`"});
  EXPECT_EQ(found("\nif two:\n    self.other.add_(1.0)"), Found{"`two`"});
  EXPECT_EQ(found("\nfor i in range(3):\n    if two:\n        self.other.add_(1.0)"), Found{"`two`"});
  EXPECT_EQ(found("\nif self.training:\n    if two:\n        self.other.add_(1.0)"), Found{"`training`"});
  EXPECT_EQ(found("\nif two:\n    self.other.add_(1.0)\nif self.training:\n    self.tracked.add_(1)"),
            (Found{"`two`", "`training`"}));
}

// What a fork assigns stands in no block of the graph, and then the attribute is put back.
TEST(Unwritten, NotByAnAttributeThatIsPutBack) {
  const auto forked = [](const std::string& name, const std::string& other, const std::string& writes) {
    return "def put(self, x):\n    self." + name + " = " + other +
           "\n    return x\ndef forward(self, x):\n    was = self." + name +
           "\n    v = torch.wait(fork(self.put, x))\n    y = self.linear(v) * self.scale\n    self." + name +
           " = was\n" + writes + "    return self.batch_norm(y)\n";
  };
  const std::string condition = forked("training", "False", "    if self.training:\n        self.other.add_(3.0)\n");
  EXPECT_EQ(conditions_of_holding(condition), std::set<std::string>{""});
  const auto tensor = fuse_graph(graph_of(net(forked("other", "self.w2", "    self.other.add_(3.0)\n"))));
  ASSERT_EQ(tensor.size(), 1u);
  EXPECT_EQ(tensor[0].reason, "`add_` in net.py:9 may write to an operand of the chain");
  const auto at_once =
      fuse_graph(graph_of(net("y = self.linear(x) * self.scale; self.other += x.sum(); return self.batch_norm(y)")));
  EXPECT_TRUE(at_once[0].fused) << at_once[0].reason;
}

TEST(Unwritten, AlwaysWhereTheConditionIsNotKnown) {
  using Found = std::set<std::string>;
  for (const char* inside : {"\nif x.dim() == 2:\n    self.other.add_(1.0)",          // computed later
                             "\nif two:\n    pass\nelse:\n    self.other.add_(1.0)",  // holds otherwise
                             "\nself.training = x.dim() == 2\nif self.training:\n    self.other.add_(1.0)",
                             "\nfor i in range(3):\n    self.other.add_(1.0)"})
    EXPECT_EQ(conditions_of_holding(std::string("two = x.dim() == 2; y = self.linear(x) * self.scale") + inside +
                                    "\nreturn self.batch_norm(y)"),
              Found{""})
        << inside;
}

}  // namespace
}  // namespace tailor::test
