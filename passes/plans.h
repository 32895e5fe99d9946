// A function's graph, and the plans that TorchScript has made from it.
#pragma once
#include <torch/csrc/jit/api/function_impl.h>

namespace tailor {

// Lets the function run its present graph from the next call on. A function that has run holds plans made from the graph
// of before; one that has not costs nothing here.
void forget_plans(torch::jit::GraphFunction& function);

// Gives the function another graph. Nothing is copied, and the old graph dies as a whole: to take it apart node by node,
// as would be needed to refill it, costs time that grows with the square of its size.
void set_graph(torch::jit::GraphFunction& function, std::shared_ptr<torch::jit::Graph> graph);

}  // namespace tailor
