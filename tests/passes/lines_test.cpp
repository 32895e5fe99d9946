// Which line of the author's a node is given.
#include "passes/lines.h"

#include <gtest/gtest.h>

#include <map>

#include "ir.h"

namespace tailor::test {
namespace {

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

// A cell of IPython's is a file of the user's that has no name on a disk.
TEST(SourceLine, InACell) {
  const auto at_line = [](const char* file) {
    const auto graph = parse("graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n  return (%y)");
    const auto source = std::make_shared<torch::jit::Source>(std::string("y = torch.relu(x)\n"), file, 6);
    find(graph, "aten::relu")->setSourceRange(torch::jit::SourceRange(source, 4, 17));
    return source_line(find(graph, "aten::relu"));
  };
  EXPECT_EQ(at_line("<ipython-input-3-0a1b>"), "<ipython-input-3-0a1b>:6");
  EXPECT_EQ(at_line("<string>"), "") << "torch's own";
  EXPECT_EQ(at_line("/home/me/net.py"), "net.py:6");
}

TEST(SourceLine, NoneInParsedIr) {
  const auto graph = parse("graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n  return (%y)");
  EXPECT_EQ(describe(find(graph, "aten::relu")), "`relu`");
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

// Freezing may have destroyed the functions that a node was inlined from; the node names them still.
class Gone final : public torch::jit::GraphFunction {
 public:
  using GraphFunction::GraphFunction;
  const c10::QualifiedName& qualname() const override {
    ADD_FAILURE() << "asked after its end";
    return GraphFunction::qualname();
  }
};

TEST(UserLines, OfFunctionsThatAreGone) {
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
