#include "source.h"

#include <torch/csrc/jit/frontend/parser.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/passes/inliner.h>

#include "passes/forks.h"
#include "passes/graph.h"

namespace tailor::test {
namespace {

using Unit = std::shared_ptr<torch::jit::CompilationUnit>;

void define_in(const Unit& unit, const c10::ClassTypePtr& type, const std::string& text, const std::string& file,
               const torch::jit::ResolverPtr& names) {
  torch::jit::Parser parser(std::make_shared<torch::jit::Source>(text, file, /*starting_line_no=*/1));
  std::vector<torch::jit::Def> definitions;
  while (parser.lexer().cur().kind != torch::jit::TK_EOF)
    definitions.emplace_back(parser.parseFunction(/*is_method=*/true));
  const std::vector<torch::jit::ResolverPtr> resolvers(definitions.size(), names);
  const torch::jit::SimpleSelf self(type);
  unit->define(*type->name(), {}, {}, definitions, resolvers, &self);
}

// torch.no_grad, as TorchScript knows it from Python.
c10::ClassTypePtr no_grad_of(const Unit& unit) {
  const c10::QualifiedName name("__torch__.torch.autograd.grad_mode.no_grad");
  if (auto known = unit->get_class(name)) return known;
  const auto type = c10::ClassType::create(name, unit);
  type->addAttribute("prev", c10::BoolType::get());
  unit->register_type(type);
  define_in(unit, type,
            "def __init__(self):\n    self.prev = False\n"
            "def __enter__(self):\n    self.prev = torch.is_grad_enabled()\n    torch.set_grad_enabled(False)\n"
            "def __exit__(self, type: Any, value: Any, traceback: Any):\n    torch.set_grad_enabled(self.prev)\n",
            "torch/autograd/grad_mode.py", torch::jit::nativeResolver());
  return type;
}

class Names final : public torch::jit::NativeResolver {
 public:
  explicit Names(Unit unit) : unit_(std::move(unit)) {}

  std::shared_ptr<torch::jit::SugaredValue> resolveValue(const std::string& name, torch::jit::GraphFunction& function,
                                                         const torch::jit::SourceRange& place) override {
    if (name == "no_grad") return std::make_shared<torch::jit::ClassValue>(no_grad_of(unit_));
    if (name == "tailor") return std::make_shared<torch::jit::BuiltinModule>("tailor");
    if (name == "annotate") return torch::jit::SpecialFormValue::create(c10::prim::annotate);
    if (name == "fork") return torch::jit::SpecialFormValue::create(c10::prim::fork);
    if (name == "Exception") return std::make_shared<torch::jit::ExceptionValue>("Exception");
    return NativeResolver::resolveValue(name, function, place);
  }

 private:
  Unit unit_;
};

}  // namespace

void define(torch::jit::Module& module, const std::string& text, const std::string& file) {
  const Unit unit = module._ivalue()->compilation_unit();
  define_in(unit, module.type(), text, file, std::make_shared<Names>(unit));
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
