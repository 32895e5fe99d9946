// Loops that torch's interpreter would run in the midst of reading arguments.
#include "passes/ahead.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/passes/common_subexpression_elimination.h>

#include "ir.h"
#include "passes/forks.h"

namespace tailor::test {
namespace {

std::shared_ptr<Graph> graph_with(const std::string& nodes) {
  return parse(std::string(head) + "  %n : int = prim::Constant[value=3]()\n" + nodes + "  return (%z)");
}

// Of an argument, or of the op that has made it.
std::string name_of(const Value* value) {
  return value->node()->kind() == c10::prim::Param ? value->debugName() : value->node()->kind().toUnqualString();
}

using Names = std::vector<std::string>;

void add_names(Block* top, Names& names) {
  for_each_block(top, [&](Block* block) {
    for (const Node* node : block->nodes())
      if (is_tailor(node, "ahead") || is_tailor(node, "ahead_untyped")) names.push_back(name_of(node->input()));
  });
  for_each_fork(top, [&](Node&, const std::shared_ptr<Graph>& forked) { add_names(forked->block(), names); });
}

// What is computed ahead.
Names ahead_in(const std::shared_ptr<Graph>& graph) {
  const std::string before = text(graph->copy());
  add_ahead(graph->block());
  graph->lint();
  Names names;
  add_names(graph->block(), names);
  drop_ahead(graph->block());
  EXPECT_EQ(text(graph), before);
  return names;
}

constexpr const char* loop = R"(  %l : Tensor = prim::Loop(%n, %yes, %s)
    block0(%i : int, %so.far : Tensor):
      %next : Tensor = aten::mul(%so.far, %x)
      -> (%yes, %next)
)";

TEST(Ahead, IsWhatALoopGives) {
  EXPECT_EQ(ahead_in(graph_with(std::string(loop) + "  %z : Tensor = aten::add(%x, %l, %one)\n")), Names{"Loop"});
  EXPECT_EQ(ahead_in(graph_with(std::string(loop) + "  %z : Tensor[] = prim::ListConstruct(%x, %l, %l)\n")),
            Names{"Loop"});
  EXPECT_EQ(ahead_in(graph_with(std::string(loop) + "  %z : Tensor = aten::relu(%x)\n")), Names{});  // to nobody
}

TEST(Ahead, IsEachOfWhatALoopGives) {
  const auto graph = graph_with(R"(  %l : Tensor, %m : Tensor, %k : Tensor = prim::Loop(%n, %yes, %s, %w, %x)
    block0(%i : int, %g : Tensor, %h : Tensor, %j : Tensor):
      -> (%yes, %h, %j, %g)
  %z : (Tensor, Tensor) = prim::TupleConstruct(%x, %l, %k)
)");
  EXPECT_EQ(ahead_in(graph), (Names{"Loop", "Loop"}));
  add_ahead(graph->block());
  const torch::jit::Node* const tuple = find(graph, "prim::TupleConstruct");
  ASSERT_TRUE(tuple);
  for (const int i : {1, 2}) {
    const torch::jit::Node* const ahead = tuple->input(i)->node();
    ASSERT_TRUE(is_tailor(ahead, "ahead"));
    EXPECT_EQ(ahead->input()->offset(), i == 1 ? 0u : 2u);
  }
}

// And what the loop begins with: of both the type is said, where torch would find another.
TEST(Ahead, IsAlsoATupleOfWhatMayBeMissing) {
  const auto graph = graph_with(R"(  %t : (Tensor, Tensor?) = prim::TupleConstruct(%x, %none)
  %l : (Tensor, Tensor?) = prim::Loop(%n, %yes, %t)
    block0(%i : int, %g : (Tensor, Tensor?)):
      -> (%yes, %g)
  %z : ((Tensor, Tensor?), Tensor) = prim::TupleConstruct(%l, %x)
)");
  EXPECT_EQ(ahead_in(graph), (Names{"TupleConstruct", "Loop"}));
  add_ahead(graph->block());
  const auto is_said = [](const Value* value) {
    return value->node()->kind() == c10::prim::unchecked_cast &&
           is_tailor(value->node()->input()->node(), "ahead_untyped");
  };
  EXPECT_TRUE(is_said(graph->return_node()->input(0)->node()->input(0)));
  EXPECT_TRUE(is_said(find(graph, "prim::Loop")->input(2)));
}

// Torch folds what a branch gives, too.
TEST(Ahead, SaysWhatABranchGives) {
  const auto graph = graph_with(R"(  %c : bool = aten::Bool(%x)
  %z : (Tensor, Tensor?) = prim::If(%c)
    block0():
      %t : (Tensor, Tensor?) = prim::TupleConstruct(%x, %none)
      -> (%t)
    block1():
      %u : (Tensor, Tensor?) = prim::TupleConstruct(%x, %x)
      -> (%u)
)");
  EXPECT_EQ(ahead_in(graph), (Names{"TupleConstruct", "TupleConstruct"}));
}

// Who reads a file finds that what the loop begins with has nothing in it, and then cannot give it something.
TEST(Ahead, LeavesATypeThatTorchDoesNotFind) {
  const auto graph = graph_with(R"(  %t : (Tensor, NoneType) = prim::TupleConstruct(%x, %none)
  %a : Any, %u : int = tailor::ahead_untyped(%t)
  %z : (Tensor, Tensor?) = prim::unchecked_cast(%a)
)");
  drop_ahead(graph->block());
  const torch::jit::Node* const cast = graph->return_node()->input(0)->node();
  ASSERT_EQ(cast->kind(), c10::prim::unchecked_cast);
  EXPECT_EQ(cast->input()->node()->kind(), c10::prim::TupleConstruct);
}

TEST(Ahead, IsWhatABranchWithALoopGives) {
  const auto branch = [](const std::string& made) {
    return graph_with("  %c : bool = aten::Bool(%x)\n  %m : Tensor = prim::If(%c)\n    block0():\n" + made +
                      "      -> (%k)\n    block1():\n      -> (%w)\n  %z : Tensor = aten::add(%w, %m, %one)\n");
  };
  EXPECT_EQ(ahead_in(branch("      %k : Tensor = aten::relu(%x)\n")), Names{});
  EXPECT_EQ(ahead_in(branch(R"(      %k : Tensor = prim::Loop(%n, %yes, %s)
        block0(%j : int, %t : Tensor):
          %u : Tensor = aten::mul(%t, %w)
          -> (%yes, %u)
)")),
            (Names{"If", "Loop"}));
}

// Whose method it is may be known once the module is frozen.
TEST(Ahead, IsWhatACallGives) {
  const auto graph = graph_with("  %z : Tensor = aten::relu(%x)\n");
  torch::jit::Node* const relu = find(graph, "aten::relu");
  torch::jit::Node* const call = graph->create(c10::prim::CallMethod, {relu->output()})->insertAfter(relu);
  call->s_(c10::attr::name, "forward");
  graph->return_node()->replaceInput(0, call->output());
  add_ahead(graph->block());
  EXPECT_TRUE(is_tailor(graph->return_node()->input(0)->node(), "ahead"));
}

// A block's results are read together, too.
TEST(Ahead, IsWhatABlockGives) {
  const auto graph = graph_with(R"(  %z : Tensor, %z2 : Tensor = prim::Loop(%n, %yes, %x, %x)
    block0(%i : int, %g : Tensor, %h : Tensor):
      %l : Tensor = prim::Loop(%n, %yes, %h)
        block0(%j : int, %t : Tensor):
          %u : Tensor = aten::mul(%t, %g)
          -> (%yes, %u)
      -> (%yes, %g, %l)
)");
  EXPECT_EQ(ahead_in(graph), (Names{"Loop", "Loop"}));
}

TEST(Ahead, IsWhatAnOpReads) {
  EXPECT_EQ(ahead_in(graph_with("  %z : Tensor = tailor::linear_sigmoid_mul_add(%x, %w, %none, %s)\n")),
            (Names{"x", "w", "s"}));
  EXPECT_EQ(ahead_in(graph_with(R"(  %u : Tensor = tailor::unwritten(%s, %x)
  %e : Tensor = aten::exp(%x)
  %z : Tensor = tailor::linear_sigmoid_mul_add(%e, %w, %none, %u)
)")),
            (Names{"s", "x", "exp", "w"}));
  EXPECT_EQ(ahead_in(graph_with("  %z : Tensor = aten::linear(%x, %w, %b)\n")), Names{});
}

TEST(Ahead, IsNothingThatTheModuleHas) {
  const auto graph = graph_of(net("return self.bn(self.linear(x) * self.scale)"));
  EXPECT_TRUE(run_pass(graph, {}).changed);
  EXPECT_TRUE(has(*graph, "tailor::linear_mul_batch_norm"));
  Names names;
  add_names(graph->block(), names);
  EXPECT_EQ(names, (Names{"If", "x.1"}));  // x, and x as it is held in training
}

TEST(Ahead, IsAlsoWhatIsForked) {
  const auto graph = graph_of(net(R"(def part(self, x):
    y = self.linear(x)
    for i in range(3):
        y = y * 2
    return y
def forward(self, x):
    return torch.wait(fork(self.part, x))
)"));
  EXPECT_EQ(ahead_in(graph), Names{"Loop"});
}

// Whoever calls what was fused, and has one, is another graph from then on.
TEST(Ahead, IsMissedWhereALoopIsBare) {
  const auto read = graph_with(std::string(loop) + "  %z : Tensor = aten::add(%x, %l, %one)\n");
  EXPECT_TRUE(has_bare_loop(read->block()));
  add_ahead(read->block());
  EXPECT_FALSE(has_bare_loop(read->block()));
  EXPECT_FALSE(has_bare_loop(graph_with(std::string(loop) + "  %z : Tensor = aten::relu(%x)\n")->block()));
  const auto forks = [](const std::string& part) {
    return has_bare_loop(graph_of(net("def part(self, x):\n    y = " + part + R"(
    for i in range(3):
        y = y * 2
    return y
def forward(self, x):
    return torch.wait(fork(self.part, x))
)"))
                             ->block());
  };
  EXPECT_FALSE(forks("torch.relu(x)"));
}

// Of a method that was fused by itself, where it is called.
TEST(Ahead, IsAddedAnew) {
  const auto graph = graph_with(R"(  %h : Tensor, %u : int = tailor::ahead(%x)
  %y : Tensor = aten::linear(%h, %w, %b)
  %g : Tensor = aten::sigmoid(%y)
  %m : Tensor = aten::mul(%g, %s)
  %z : Tensor = aten::add(%m, %y, %one)
)");
  EXPECT_TRUE(run_pass(graph, {}).changed);
  Names names;
  add_names(graph->block(), names);
  EXPECT_EQ(names, (Names{"x", "w", "b", "s"}));
  EXPECT_FALSE(run_pass(graph, {}).changed);
  Names again;
  add_names(graph->block(), again);
  EXPECT_EQ(again, names);
}

// Without it the interpreter would not get through the loop.
TEST(Ahead, RunsAsItIsWritten) {
  const auto module = net(R"(s = x.sum()
a = torch.sigmoid(x)
for i in range(4):
    s = s * a.mean()
y = self.linear(torch.sigmoid(x))
z = torch.sigmoid(y) * s + y
for i in range(2):
    z = z * z.mean()
return z)");
  const auto graph = graph_of(module);
  const auto fused = graph->copy();
  const auto sites = run_pass(fused, {}).sites;
  ASSERT_TRUE(sites.size() == 1 && sites[0].fused);
  EXPECT_TRUE(has(*fused, "tailor::ahead"));
  torch::jit::EliminateCommonSubexpression(fused);
  const auto x = at::randn({7, 5}, at::kDouble);
  const Outcome expected = run_on(module, graph, {x}), outcome = run_on(module, fused, {x});
  EXPECT_EQ(outcome.error, "");
  ASSERT_EQ(outcome.values.size(), 1u);
  EXPECT_TRUE(at::allclose(outcome.values[0], expected.values[0]));
}

}  // namespace
}  // namespace tailor::test
