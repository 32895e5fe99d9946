// Graphs that a graph forks, or puts off until somebody waits for them.
#pragma once
#include <memory>

#include "graph.h"

namespace tailor {

// The graph that a forked node runs, or null.
std::shared_ptr<Graph> forked_graph(const Node* node);

// Visits every node of a block that forks, with the graph that it runs; what that one forks is not visited.
template <class Visitor>
void for_each_fork(Block* top, Visitor&& visit) {
  for_each_block(top, [&](Block* block) {
    for (Node* node : block->nodes())
      if (const auto forked = forked_graph(node)) visit(*node, forked);
  });
}

// Gives forked graphs the constants that they take as arguments: torch makes them that where it loads a file in which the graph
// around has the same ones.
void own_constants(Block* top);

}  // namespace tailor
