// The plans that TorchScript has made for a function.
#pragma once
#include <torch/csrc/jit/api/function_impl.h>

namespace tailor {

// Lets the function run its present graph from the next call on. A function that has run holds plans made from the graph
// of before; one that has not costs nothing here.
void forget_plans(torch::jit::GraphFunction& function);

}  // namespace tailor
