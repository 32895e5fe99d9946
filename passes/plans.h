// A function's graph, and the plans that TorchScript has made from it.
#pragma once
#include <torch/csrc/jit/api/function_impl.h>

#include <vector>

namespace tailor {

// Lets the functions, and all that they call, run their present graphs from the next call on. A function that has run holds plans made from
// its graph of before, or from what it called then; one that has not costs nothing here. All at once, since a plan is made of what the
// others' graphs are by then. Plans of what no chain can be in stay, nn.Linear's above all: every thread may be running that.
void forget_plans(const std::vector<torch::jit::GraphFunction*>& functions);

// Gives the function another graph. Nothing is copied, and the old graph, which others may be reading, dies later and as a whole: to take
// it apart node by node, as would be needed to refill it, costs time that grows with the square of its size.
void set_graph(torch::jit::GraphFunction& function, std::shared_ptr<torch::jit::Graph> graph);

}  // namespace tailor
