// Functions that call functions: who calls whom, and graphs with the code of all that they call in them.
#pragma once
#include <torch/csrc/jit/api/function_impl.h>

#include <unordered_set>
#include <vector>

#include "graph.h"

namespace tailor {

// A copy of the function's graph, calls inlined, those in what it forks too: but for those that kept_calls() finds.
std::shared_ptr<Graph> inlined_copy(const torch::jit::GraphFunction& function);

using Functions = std::unordered_set<torch::jit::Function*>;

// Adds all that the function calls, directly or not, also where a `with` block begins or ends. Of what it calls through an
// interface, the methods of classes that are no modules: which modules there are, whoever has the module knows.
void add_called(torch::jit::Function& function, Functions& called);

// Whether the function or anything that it calls has a block of that kind: has_linear or has_tailor_op. What is called through an
// interface may be anything.
bool leads_to(torch::jit::Function& function, bool (*is_wanted)(const Block*));

// The same of a node that calls something, as far as the node's graph tells what that may be: of an interface the methods
// of all classes of the unit that have it.
bool may_lead_to(const Node* call, bool (*is_wanted)(const Block*));

// Adds what calls were inlined of, as they are in a graph that was fused. The functions may be gone: they are not to be looked at.
void add_inlined(const torch::jit::GraphFunction& function, Functions& called);

// What stays called by the functions themselves, where other calls are inlined, and by `with` and through interfaces: each once.
std::vector<torch::jit::GraphFunction*> kept_calls(const Functions& functions);

// The functions and all that they call, directly or not. A function that was fused when it was compiled is no module's
// method, and may be called, not inlined, by methods in which nothing was.
std::vector<torch::jit::GraphFunction*> with_called(const std::vector<torch::jit::GraphFunction*>& functions);

}  // namespace tailor
