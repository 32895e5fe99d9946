// The words in which the pass talks about graphs.
#include "passes/graph.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "ir.h"

namespace tailor::test {
namespace {

torch::jit::Node* find(const std::shared_ptr<Graph>& graph, const std::string& kind) {
  for (torch::jit::Node* node : graph->nodes())
    if (node->kind().toQualString() == kind) return node;
  throw std::logic_error("no " + kind);
}

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
  EXPECT_EQ(which(is_constant_one), "001100");
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

TEST(SourceLine, SkipsTorchNn) {
  const auto graph = graph_of(net("z = x * 2.0; y = self.linear(z); return y"));
  EXPECT_EQ(source_line(find(graph, "aten::linear")), "net.py:3");  // not torch/nn/parts.py
  EXPECT_EQ(source_line(find(graph, "aten::mul")), "net.py:2");
  EXPECT_EQ(describe(find(graph, "aten::mul")), "`mul` in net.py:2");
  EXPECT_EQ(describe(graph->return_node()), "the method's result");
}

// Of a user's own functions it is the one that the others have called.
TEST(SourceLine, IsTheInnermostOfTheUsers) {
  const auto graph = graph_of(
      net("def part(self, x):\n    return torch.relu(x)\ndef forward(self, x):\n    y = self.part(x)\n    return y"));
  EXPECT_EQ(source_line(find(graph, "aten::relu")), "net.py:2");
}

// `2.0 * x` is TorchScript of torch's own, in a file that no user has.
TEST(SourceLine, SkipsTorchsOwnScript) {
  const auto graph = graph_of(net("z = 2.0 * x; return z"));
  EXPECT_EQ(source_line(find(graph, "aten::mul")), "net.py:2");
  // Of its two nodes the first reads only what comes from above.
  const auto quotient = graph_of(net("y = torch.relu(x)\nz = 2.0 / y\nreturn z"));
  EXPECT_EQ(source_line(find(quotient, "aten::reciprocal")), "net.py:3");
  EXPECT_EQ(source_line(find(quotient, "aten::mul")), "net.py:3");
}

TEST(SourceLine, NoneInParsedIr) {
  const auto graph = parse("graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n  return (%y)");
  EXPECT_EQ(describe(find(graph, "aten::relu")), "`relu`");
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

// A tracer keeps the whole stack of Python; in it stands who called the module.
TEST(SourceLine, OfATrace) {
  const auto graph = parse("graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n  return (%y)");
  torch::jit::Node* relu = find(graph, "aten::relu");
  const auto trace = [&](const std::string& stack) {
    const auto source = std::make_shared<torch::jit::Source>(stack, "/lib/site-packages/torch/nn/functional.py", 17);
    relu->setSourceRange(torch::jit::SourceRange(source, 0, stack.size()));
    return source_line(relu);
  };
  const std::string inner =
      "/lib/site-packages/torch/nn/functional.py(17): relu\n/lib/site-packages/torch/nn/modules/module.py(9): "
      "_call_impl\n";
  EXPECT_EQ(trace(inner + "/home/me/net.py(30): forward\n/home/me/train.py(4): <module>\n"), "net.py:30");
  EXPECT_EQ(trace(inner + "/lib/site-packages/torch/jit/_trace.py(1): trace\n/home/me/train.py(4): <module>\n"),
            "functional.py:17");
  EXPECT_EQ(trace("torch.relu(x)"), "functional.py:17");
  EXPECT_EQ(trace("/lib/site-packages/torch/_tensor.py(9): __rdiv__\n/home/me/net.py(30): forward\n"), "net.py:30");
}

TEST(SourceLine, OfSomebodyElsesTorch) {
  const auto graph = parse("graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n  return (%y)");
  torch::jit::Node* relu = find(graph, "aten::relu");
  const auto line = [&](const std::string& file) {
    const std::string stack = file + "(17): forward\n/home/me/train.py(4): <module>\n";
    const auto source = std::make_shared<torch::jit::Source>(stack, "torch/nn/functional.py", 1);
    relu->setSourceRange(torch::jit::SourceRange(source, 0, stack.size()));
    return source_line(relu);
  };
  for (const char* users :
       {"/home/me/mytorch/nn/net.py", "/home/me/torch/nn/net.py", "mytorch/nn/net.py", "/home/me/mytorch/jit/net.py",
        "/home/me/site-packages/mine/torch/nn/net.py", "/home/me/my_torch/_tensor.py/net.py"})
    EXPECT_EQ(line(users), "net.py:17") << users;
  for (const char* torchs :
       {"/usr/lib/python3/dist-packages/torch/nn/parts.py", "/venv/site-packages/torch/nn/a/b.py", "torch/nn/parts.py",
        "code/__torch__/torch/nn/parts.py", "/home/me/torch/nn/site-packages/torch/nn/parts.py"})
    EXPECT_EQ(line(torchs), "train.py:4") << torchs;
}

// In a file a trace's calls of modules have no line at all; the linear's own range still holds the stack.
TEST(SourceLine, OfATraceInAFile) {
  const auto graph = parse("graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n  return (%y)");
  torch::jit::Node* relu = find(graph, "aten::relu");
  const std::string stack = "/lib/site-packages/torch/nn/functional.py(17): relu\n/home/me/net.py(30): forward\n";
  const auto range = [](const std::string& text, const char* file) {
    return torch::jit::SourceRange(std::make_shared<torch::jit::Source>(text, file, 17), 0, text.size());
  };
  relu->setSourceRange(range(stack, "/lib/site-packages/torch/nn/functional.py"));
  relu->setCallStack(c10::make_intrusive<torch::jit::InlinedCallStack>(nullptr, range("", ""), std::nullopt));
  EXPECT_EQ(source_line(relu), "net.py:30");
}

// A file keeps a node's own line and forgets through which calls it came there.
TEST(UserLines, AreKept) {
  const auto graph = graph_of(net("y = self.linear(x); y = self.gn(y); return torch.relu(y)"));
  std::map<const torch::jit::Node*, std::string> lines;
  for (const torch::jit::Node* node : graph->nodes()) lines[node] = source_line(node);
  keep_user_lines(graph->block());
  for (torch::jit::Node* node : graph->nodes()) {
    EXPECT_EQ(source_line(node), lines[node]) << *node;
    if (!node->kind().is_aten()) continue;
    EXPECT_EQ(std::get<0>(node->sourceRange().file_line_col().value()), "net.py") << *node;
    EXPECT_FALSE(node->callstack().has_value()) << *node;
  }
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

// Freezing may have destroyed the functions that a node was inlined from; the node names them still.
class Gone final : public torch::jit::GraphFunction {
 public:
  using GraphFunction::GraphFunction;
  const c10::QualifiedName& qualname() const override {
    ADD_FAILURE() << "asked after its end";
    return GraphFunction::qualname();
  }
};

TEST(Graph, FunctionsThatAreGone) {
  const auto line = [](int number) {
    const std::string text = "y = x";
    return torch::jit::SourceRange(
        std::make_shared<torch::jit::Source>(text, "net.py", static_cast<std::size_t>(number)), 0, text.size());
  };
  Gone gone("gone", std::make_shared<Graph>(), nullptr);
  std::string inner_name = "inner";  // torch moves them away
  std::string name = "outer";
  const auto inner = c10::make_intrusive<torch::jit::InlinedCallStack>(&gone, line(2), std::nullopt, inner_name);
  Graph graph;
  torch::jit::Node* from = graph.insertNode(graph.create(c10::aten::relu, {graph.addInput()}));
  from->setSourceRange(line(3));
  from->setCallStack(c10::make_intrusive<torch::jit::InlinedCallStack>(inner, &gone, line(1), std::nullopt, name));
  torch::jit::Node* node = graph.insertNode(graph.create(c10::aten::sigmoid, {from->output()}));
  take_user_line(node, from);
  EXPECT_EQ(source_line(node), "net.py:3");
  ASSERT_TRUE(node->callstack());
  EXPECT_EQ((*node->callstack())->function_name(), "outer");
}

}  // namespace
}  // namespace tailor::test
