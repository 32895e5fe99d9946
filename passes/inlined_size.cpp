#include "inlined_size.h"

#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "forks.h"

namespace tailor {
namespace {

// With as many nodes, what the pass makes of a graph while it looks at it takes 1.5 to 3 GB: reckoned from a model of a third of that.
constexpr std::uint64_t most_of_a_function = 1'000'000;
// What was rewritten before it is inlined has guards in it, too.
constexpr std::uint64_t most_of_a_graph = 2 * most_of_a_function;
// Rewritten graphs stay. How much each takes was not measured.
constexpr std::uint64_t most_of_all = 4 * most_of_a_function;

class InlinedSize {
 public:
  explicit InlinedSize(const Instead& instead) : instead_(instead) {}

  // Of what is too large, only that.
  std::uint64_t of(Graph& graph) {
    const auto [known, is_new] = known_.emplace(&graph, too_many);  // until it is counted: it would call itself
    if (!is_new) return known->second;
    std::uint64_t sum = 0;
    for_each_block(graph.block(), [&](Block* block) {
      for (Node* node : block->nodes()) {
        ++sum;
        if (auto* callee = torch::jit::tryToGraphFunction(node)) sum += of(*graph_of(*callee, instead_));
        if (const auto forked = forked_graph(node)) sum += of(*forked);
        sum = std::min(sum, too_many);
      }
    });
    return known_[&graph] = sum;
  }

 private:
  static constexpr std::uint64_t too_many = most_of_a_graph + 1;

  const Instead& instead_;
  std::unordered_map<const Graph*, std::uint64_t> known_;
};

void require(std::uint64_t nodes, std::uint64_t most, const std::string& whose) {
  if (nodes > most)
    throw TooLarge(whose + " would have more than " + std::to_string(most) +
                   " nodes with all calls inlined, which takes too much memory");
}

}  // namespace

void require_small(Graph& graph, const Instead& instead) {
  require(InlinedSize(instead).of(graph), most_of_a_graph, "a graph");
}

void require_small(const Functions& functions) {
  const Instead nothing;
  InlinedSize size(nothing);
  std::uint64_t sum = 0;
  for (torch::jit::Function* function : functions) {
    auto* graph_function = torch::jit::tryToGraphFunction(*function);
    if (!graph_function) continue;
    const std::uint64_t own = size.of(*graph_function->graph());
    require(own, most_of_a_function, "`" + spoken_name(*function) + "`");
    require(sum += own, most_of_all, "the methods together");
  }
}

}  // namespace tailor
