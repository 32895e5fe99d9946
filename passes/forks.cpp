#include "forks.h"

namespace tailor {

std::shared_ptr<Graph> forked_graph(const Node* node) {
  const bool runs_graph = node->kind() == c10::prim::fork || node->kind() == c10::prim::awaitable;
  return runs_graph && node->hasAttribute(c10::attr::Subgraph) ? node->g(c10::attr::Subgraph) : nullptr;
}

void own_constants(Block* top) {
  for_each_fork(top, [](Node& node, const std::shared_ptr<Graph>& forked) {
    for (std::size_t i = node.inputs().size(); i-- > 0;) {
      Node* const constant = node.input(i)->node();
      if (constant->kind() != c10::prim::Constant) continue;
      Node* const own = forked->prependNode(forked->createClone(constant, [](Value* value) { return value; }));
      forked->inputs()[i]->replaceAllUsesWith(own->output());
      forked->eraseInput(i);
      node.removeInput(i);
    }
    own_constants(forked->block());
  });
}

}  // namespace tailor
