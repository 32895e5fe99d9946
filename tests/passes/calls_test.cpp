// What is inlined of calls, how, and how long it takes.
#include "passes/calls.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <ctime>

#include "ir.h"
#include "passes/inlined_size.h"
#include "source.h"

namespace tailor::test {
namespace {

// Modules in modules, each with a method of its own beside forward and a call of the one inside it, in a branch.
Module nested(int depth) {
  const std::string name = "Nested" + std::to_string(depth);
  Module module("__torch__." + name);
  std::string inner = "torch.relu(x)";
  if (depth > 0) {
    module.register_module("inner", nested(depth - 1));
    inner = "self.inner.forward(x)";
  }
  define(module,
         "def twice(self, x):\n  print(1)\n  return x + x\n"
         "def forward(self, x):\n  y = self.twice(x)\n  if bool(x.size(0) > 2):\n    y = " +
             inner + "\n  return y * 3.0\n",
         name + ".py");
  return module;
}

const torch::jit::GraphFunction& forward_of(const Module& module) {
  return *torch::jit::tryToGraphFunction(module.get_method("forward").function());
}

// Each node with its line and the calls that led to it: but constants, which may stand in any order, and what gives nothing, of which
// torch leaves a call out.
std::vector<std::string> described(Block* top) {
  std::vector<std::string> all;
  for_each_block(top, [&](Block* block) {
    for (const Node* node : block->nodes()) {
      if (node->kind() == c10::prim::Constant || node->outputs().empty()) continue;
      std::string text = node->kind().toQualString();
      const auto add = [&](const torch::jit::SourceRange& range) {
        const auto place = range.file_line_col();
        text += place ? " " + std::get<0>(*place) + ":" + std::to_string(std::get<1>(*place)) : " nowhere";
      };
      add(node->sourceRange());
      if (const auto stack = node->callstack(); stack && *stack) {
        for (const auto& [function, range, instance] : (*stack)->vec()) {
          text += " in " + function->name();
          add(range);
        }
      }
      all.push_back(text);
    }
  });
  return all;
}

TEST(InlinedCopy, IsTorchsOwnLineByLine) {
  const Module module = nested(5);
  const auto theirs = forward_of(module).graph()->copy();
  torch::jit::Inline(*theirs);
  const auto ours = inlined_copy(forward_of(module));
  EXPECT_EQ(described(ours->block()), described(theirs->block()));
  std::size_t deepest = 0;
  for_each_block(ours->block(), [&](Block* block) {
    for (const Node* node : block->nodes())
      if (const auto stack = node->callstack(); stack && *stack) deepest = std::max(deepest, (*stack)->vec().size());
  });
  EXPECT_EQ(deepest, 6u) << "five modules and a method of the innermost";
}

TEST(InlinedCopy, SaysOfWhatGivesNothingWhoCalledIt) {
  const auto graph = inlined_copy(forward_of(nested(3)));
  std::vector<std::size_t> calls;
  for_each_block(graph->block(), [&](Block* block) {
    for (const Node* node : block->nodes())
      if (node->kind() == c10::prim::Print)
        calls.push_back(node->callstack() && *node->callstack() ? (*node->callstack())->vec().size() : 0);
  });
  EXPECT_EQ(calls, (std::vector<std::size_t>{0, 1, 2, 3})) << "the outermost module's, and those in it";
}

TEST(InlinedCopy, LeavesTheGraphsOfAllAlone) {
  const Module module = nested(3);
  std::vector<std::string> before;
  for (const auto& inner : module.modules()) before.push_back(forward_of(inner).graph()->toString(true));
  inlined_copy(forward_of(module));
  std::size_t i = 0;
  for (const auto& inner : module.modules()) EXPECT_EQ(forward_of(inner).graph()->toString(true), before[i++]);
}

// Of the processor, for this thread: what else runs on the machine does not count.
double seconds_to_inline(const Module& module, const Instead& instead = {}) {
  timespec begin{}, end{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  for (int i = 0; i < 3; ++i) inlined_copy(forward_of(module), instead);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return static_cast<double>(end.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec);
}

// Eight times as deep; if each level were copied for each around it, it would be 64 times.
TEST(InlinedCopy, GrowsWithTheDepthOfCalls) {
  const Module few = nested(25), many = nested(200);
  seconds_to_inline(few);
  const double little = seconds_to_inline(few), much = seconds_to_inline(many);
  EXPECT_LT(much, 24 * little + 0.1) << little << " s, " << much << " s";
}

// In a fused graph, what is forked has nothing to inline any more; if it were copied anew at each depth, it would be 64 times.
TEST(InlinedCopy, GrowsWithTheDepthOfForks) {
  const auto seconds_for = [](int depth) {
    std::string body = "def p0(self, x):\n  return torch.relu(x)\n";
    for (int i = 1; i < depth; ++i)
      body += "def p" + std::to_string(i) + "(self, x):\n  return torch.wait(fork(self.p" + std::to_string(i - 1) +
              ", x)) * 2\n";
    const Module module = net(body + "def forward(self, x):\n  return self.p" + std::to_string(depth - 1) + "(x)\n");
    return seconds_to_inline(module, {{&forward_of(module), inlined_copy(forward_of(module))}});
  };
  seconds_for(10);
  const double little = seconds_for(25), much = seconds_for(200);
  EXPECT_LT(much, 24 * little + 0.1) << little << " s, " << much << " s";
}

// Each calls the next one twice.
Module doubling(int depth) {
  const std::string name = "Doubling" + std::to_string(depth);
  Module module("__torch__." + name);
  if (depth > 0) module.register_module("inner", doubling(depth - 1));
  const std::string twice = "self.inner.forward(self.inner.forward(x))";
  define(module, "def forward(self, x):\n  return " + (depth > 0 ? twice : "torch.relu(x)") + "\n", name + ".py");
  return module;
}

TEST(InlinedCopy, RefusesWhatWouldFillAllMemory) {
  EXPECT_THROW(inlined_copy(forward_of(doubling(20))), TooLarge);
  Module module = doubling(19);
  EXPECT_THROW(fuse(module), TooLarge);
  EXPECT_THROW(inspect(module), TooLarge);
  EXPECT_THROW(unfuse(module), TooLarge);
}

// Of which each by itself would be small enough.
TEST(InlinedCopy, RefusesWhatWouldFillAllMemoryTogether) {
  Module module("__torch__.Together");
  module.register_module("inner", doubling(15));
  std::string code;
  for (int i = 0; i < 60; ++i) code += "def m" + std::to_string(i) + "(self, x):\n  return self.inner.forward(x)\n";
  define(module, code, "together.py");
  inlined_copy(*torch::jit::tryToGraphFunction(module.get_method("m0").function()));
  EXPECT_THROW(fuse(module), TooLarge);
}

TEST(InlinedCopy, RefusesWhatWouldFillAllMemoryInAFork) {
  Module module("__torch__.Forking");
  module.register_module("inner", doubling(20));
  define(module, "def forward(self, x):\n  return torch.wait(fork(self.inner.forward, x))\n", "forking.py");
  EXPECT_THROW(inlined_copy(forward_of(module)), TooLarge);
}

TEST(Leads, ToWhatIsCalled) {
  const auto leads_to = [](torch::jit::Function& function, Leads::IsWanted is_wanted) {
    return Leads(is_wanted).from(function);
  };
  const Module plain = nested(4);
  EXPECT_FALSE(leads_to(plain.get_method("forward").function(), has_linear));
  const Module linear = net("return torch.relu(self.linear(x))");
  EXPECT_TRUE(leads_to(linear.get_method("forward").function(), has_linear)) << "in a submodule";
  EXPECT_FALSE(leads_to(linear.get_method("forward").function(), has_tailor_op));
  const Module forked = net("f = fork(self.linear, x); return torch.wait(f)");
  EXPECT_TRUE(leads_to(forked.get_method("forward").function(), has_linear)) << "in what is forked";
}

}  // namespace
}  // namespace tailor::test
