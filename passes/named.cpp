#include "named.h"

#include <unordered_set>

#include "calls.h"
#include "entries.h"
#include "forks.h"
#include "objects.h"

namespace tailor {
namespace {

using torch::jit::AttributeKind;
using torch::jit::Function;
using torch::jit::GraphFunction;

class Named {
 public:
  void add(const c10::TypePtr& type) {
    if (!seen_types_.insert(type.get()).second) return;
    types_.push_back(type);
    for (const auto& inner : type->containedTypes()) add(inner);  // a class's attributes among them
    if (const auto own = type->cast<c10::ClassType>())
      for (Function* function : functions_of(*own)) add(*function);
  }

  std::vector<GraphFunction*> all() {
    for (std::size_t i = 0; i < functions_.size(); ++i) look_into(functions_[i]->graph()->block());
    return std::move(functions_);
  }

 private:
  void add(Function& function) {
    auto* graph_function = torch::jit::tryToGraphFunction(function);
    if (graph_function && seen_functions_.insert(&function).second) functions_.push_back(graph_function);
  }

  void look_into(Block* top) {
    for_each_known_callee(top, [&](Function& callee) { add(callee); });
    for_each_block(top, [&](Block* block) {
      for (const Value* input : block->inputs()) add(input->type());
      for (const Node* node : block->nodes()) add_types_of(*node);
    });
    for_each_fork(top, [&](Node&, const std::shared_ptr<Graph>& forked) { look_into(forked->block()); });
  }

  // `isinstance` has types of its own.
  void add_types_of(const Node& node) {
    for (const Value* output : node.outputs()) add(output->type());
    for (const c10::Symbol name : node.attributeNames()) {
      if (node.kindOf(name) == AttributeKind::ty) add(node.ty(name));
      if (node.kindOf(name) != AttributeKind::tys) continue;
      for (const auto& type : node.tys(name)) add(type);
    }
  }

  std::vector<c10::TypePtr> types_;  // kept alive, for they are told apart by their addresses
  std::unordered_set<const c10::Type*> seen_types_;
  std::vector<GraphFunction*> functions_;
  Functions seen_functions_;
};

}  // namespace

std::vector<GraphFunction*> functions_in_file_of(const torch::jit::Module& module) {
  Named named;
  for (const auto& [path, object] : objects_in(module)) named.add(object->type());
  return named.all();
}

}  // namespace tailor
