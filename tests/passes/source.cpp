#include "source.h"

#include <torch/csrc/jit/frontend/parser.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/passes/inliner.h>

#include "passes/graph.h"
#include "passes/pass.h"

namespace tailor::test {
namespace {

class Names final : public torch::jit::NativeResolver {
 public:
  std::shared_ptr<torch::jit::SugaredValue> resolveValue(const std::string& name, torch::jit::GraphFunction& function,
                                                         const torch::jit::SourceRange& place) override {
    if (name == "tailor") return std::make_shared<torch::jit::BuiltinModule>("tailor");
    if (name == "annotate") return torch::jit::SpecialFormValue::create(c10::prim::annotate);
    if (name == "fork") return torch::jit::SpecialFormValue::create(c10::prim::fork);
    if (name == "Exception") return std::make_shared<torch::jit::ExceptionValue>("Exception");
    return NativeResolver::resolveValue(name, function, place);
  }
};

}  // namespace

void define(torch::jit::Module& module, const std::string& text, const std::string& file) {
  torch::jit::Parser parser(std::make_shared<torch::jit::Source>(text, file, /*starting_line_no=*/1));
  std::vector<torch::jit::Def> definitions;
  while (parser.lexer().cur().kind != torch::jit::TK_EOF)
    definitions.emplace_back(parser.parseFunction(/*is_method=*/true));
  const std::vector<torch::jit::ResolverPtr> resolvers(definitions.size(), std::make_shared<Names>());
  const torch::jit::SimpleSelf self(module.type());
  module._ivalue()->compilation_unit()->define(*module.type()->name(), {}, {}, definitions, resolvers, &self);
}

// As the pass's own doors do, but in what is forked as well, whatever it holds.
void inline_calls(torch::jit::Graph& graph) {
  for_each_block(graph.block(), [](torch::jit::Block* block) {
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      torch::jit::Node* node = *it++;
      if (const auto forked = forked_graph(node)) inline_calls(*forked);
      auto* callee = torch::jit::tryToGraphFunction(node);
      if (!callee) continue;
      const auto code = callee->graph()->copy();
      inline_calls(*code);
      if (node->kind() == c10::prim::CallFunction) node->removeInput(0);
      torch::jit::inlineCallTo(node, callee, code.get());
    }
  });
}

std::string last_line(std::string message) {
  while (!message.empty() && message.back() == '\n') message.pop_back();
  return message.substr(message.find_last_of('\n') + 1);
}

}  // namespace tailor::test
