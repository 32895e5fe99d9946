// Arguments that torch's interpreter would clear while a loop runs that it takes for another argument.
#include "passes/held.h"

#include <gtest/gtest.h>

#include "ir.h"

namespace tailor::test {
namespace {

// `inside` is the loop's body, and gives %next; `behind` what comes then, and gives %z.
std::shared_ptr<Graph> after_a_loop(const std::string& inside, const std::string& behind) {
  return parse(std::string(head) + R"(  %n : int = prim::Constant[value=3]()
  %a : Tensor = aten::relu(%x)
  %l : Tensor = prim::Loop(%n, %yes, %s)
    block0(%i : int, %so.far : Tensor):
)" + inside + "      -> (%yes, %next)\n" +
               behind + "  return (%z)");
}

constexpr const char* reads_a = "      %next : Tensor = aten::mul(%so.far, %a)\n";

// Of an argument, or of the op that has made it.
std::string name_of(const Value* value) {
  return value->node()->kind() == c10::prim::Param ? value->debugName() : value->node()->kind().toUnqualString();
}

// What is held, as often as it is.
std::vector<std::string> held_in(const std::shared_ptr<Graph>& graph) {
  const std::string before = text(graph->copy());
  hold_arguments(graph->block());
  graph->lint();
  std::vector<std::string> names;
  for_each_block(graph->block(), [&](Block* block) {
    for (const Node* node : block->nodes())
      if (is_tailor(node, "held")) names.push_back(name_of(node->input()));
  });
  let_go_of_arguments(graph->block());
  EXPECT_EQ(text(graph), before);
  return names;
}

using Names = std::vector<std::string>;

TEST(Held, IsWhatALoopReadsThatRunsAmongTheArguments) {
  EXPECT_EQ(held_in(after_a_loop(reads_a, "  %z : Tensor = aten::add(%a, %l, %one)\n")), Names{"relu"});
  EXPECT_EQ(held_in(after_a_loop(reads_a, "  %z : Tensor[] = prim::ListConstruct(%a, %w, %a, %l)\n")),
            (Names{"relu", "relu"}));
  EXPECT_EQ(held_in(after_a_loop(reads_a, "  %e : Tensor = aten::exp(%l)\n  %z : Tensor = aten::add(%a, %e, %one)\n")),
            Names{"relu"});
}

// The executor's graphs say of each argument what it was in the first calls.
TEST(Held, IsWhatIsProfiled) {
  EXPECT_EQ(held_in(after_a_loop(reads_a, R"(  %p : Tensor = prim::profile(%a)
  %q : Tensor = prim::profile(%l)
  %z : Tensor = aten::add(%p, %q, %one)
)")),
            Names{"profile"});
}

TEST(Held, IsNothingElse) {
  const std::string other = "      %next : Tensor = aten::mul(%so.far, %w)\n";
  EXPECT_EQ(held_in(after_a_loop(other, "  %z : Tensor = aten::add(%a, %l, %one)\n")), Names{});
  EXPECT_EQ(held_in(after_a_loop(reads_a, "  %z : Tensor = aten::add(%l, %a, %one)\n")), Names{});  // read behind it
  EXPECT_EQ(held_in(after_a_loop(reads_a, "  %z : (Tensor, Tensor, Tensor) = prim::TupleConstruct(%a, %l, %l)\n")),
            Names{});  // the loop has run by then
}

TEST(Held, IsWhatALoopInABranchReads) {
  const std::string branch = R"(  %c : bool = aten::Bool(%x)
  %m : Tensor = prim::If(%c)
    block0():
      %k : Tensor = prim::Loop(%n, %yes, %s)
        block0(%j : int, %t : Tensor):
          %u : Tensor = aten::mul(%t, %w)
          -> (%yes, %u)
      -> (%k)
    block1():
      -> (%l)
)";
  EXPECT_EQ(held_in(after_a_loop(reads_a, branch + "  %z : Tensor = aten::add(%w, %m, %one)\n")), Names{"w"});
}

// What an outer loop reads again in its next turn torch does not take for read the last time.
TEST(Held, IsNoneOfWhatIsMadeOutside) {
  const auto graph_with = [](const std::string& made_inside) {
    return parse(std::string(head) + R"(  %n : int = prim::Constant[value=3]()
  %z : Tensor = prim::Loop(%n, %yes, %x)
    block0(%i : int, %h : Tensor):
)" + made_inside +
                 R"(      %l : Tensor = prim::Loop(%n, %yes, %h)
        block0(%j : int, %t : Tensor):
          %u : Tensor = aten::mul(%t, %v)
          -> (%yes, %u)
      %next : Tensor = aten::add(%v, %l, %one)
      -> (%yes, %next)
  return (%z))");
  };
  EXPECT_EQ(held_in(graph_with("      %v : Tensor = aten::relu(%w)\n")), Names{"relu"});
  const auto outside = graph_with("      %v : Tensor = aten::relu(%w)\n");
  torch::jit::Node* const loop = find(outside, "prim::Loop");
  ASSERT_TRUE(loop);
  (*loop->blocks()[0]->nodes().begin())->moveBefore(loop);
  EXPECT_EQ(held_in(outside), Names{});
}

TEST(Held, IsWhatABlockGivesToo) {
  const auto graph = parse(std::string(head) + R"(  %n : int = prim::Constant[value=3]()
  %z : Tensor, %z2 : Tensor = prim::Loop(%n, %yes, %x, %x)
    block0(%i : int, %g : Tensor, %h : Tensor):
      %l : Tensor = prim::Loop(%n, %yes, %h)
        block0(%j : int, %t : Tensor):
          %u : Tensor = aten::mul(%t, %g)
          -> (%yes, %u)
      -> (%yes, %g, %l)
  return (%z, %z2))");
  EXPECT_EQ(held_in(graph), Names{"g"});
}

// Of a method that was fused by itself, where it is called.
TEST(Held, IsLookedAtAnew) {
  const auto graph = parse(std::string(head) + R"(  %h : Tensor = tailor::held(%x)
  %y : Tensor = aten::linear(%h, %w, %b)
  %g : Tensor = aten::sigmoid(%y)
  %m : Tensor = aten::mul(%g, %s)
  %z : Tensor = aten::add(%m, %y, %one)
  return (%z))");
  const auto sites = fuse_graph(graph);
  EXPECT_TRUE(sites.size() == 1 && sites[0].fused);
  EXPECT_FALSE(has(*graph, "tailor::held"));
}

// Without it the interpreter would not get through the loop.
TEST(Held, RunsAsItIsWritten) {
  const auto module = net(R"(s = x.sum()
for i in range(4):
    s = s * x.mean()
y = self.linear(x)
z = torch.sigmoid(y) * s + y
for i in range(2):
    z = z * z.mean()
return z)");
  const auto graph = graph_of(module);
  const auto fused = graph->copy();
  const auto sites = fuse_graph(fused);
  ASSERT_TRUE(sites.size() == 1 && sites[0].fused);
  EXPECT_TRUE(has(*fused, "tailor::held"));
  const auto x = at::randn({7, 5}, at::kDouble);
  const Outcome expected = run_on(module, graph, {x}), outcome = run_on(module, fused, {x});
  EXPECT_EQ(outcome.error, "");
  ASSERT_EQ(outcome.values.size(), 1u);
  EXPECT_TRUE(at::allclose(outcome.values[0], expected.values[0]));
}

}  // namespace
}  // namespace tailor::test
