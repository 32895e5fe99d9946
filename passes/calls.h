// Functions that call functions: who calls whom, and graphs with the code of all that they call in them.
#pragma once
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>

#include <functional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph.h"

namespace tailor {

// Graphs that functions are to have.
using Instead = std::unordered_map<const torch::jit::Function*, std::shared_ptr<Graph>>;

std::shared_ptr<Graph> graph_of(const torch::jit::GraphFunction& function, const Instead& instead);

// A copy of the function's graph, calls inlined, those in what it forks too: but for those that kept_calls() finds. What was declared
// where it is called is said by casts. `instead`: of what is called, where that is not the graph that it has.
// Throws TooLarge (inlined_size.h).
std::shared_ptr<Graph> inlined_copy(const torch::jit::GraphFunction& function, const Instead& instead = {});

using Functions = std::unordered_set<torch::jit::Function*>;

// Visits what the block calls, in what it forks too, but for what it knows by an interface.
void for_each_known_callee(Block* block, const std::function<void(torch::jit::Function&)>& visit);

// All that the functions call, directly or not: also where a `with` block begins or ends and, of objects that they know by an
// interface, the methods of those classes of which they make objects. Modules behind an interface whoever has the module knows.
Functions called_by(const Functions& functions);

// The classes among which the graph's own is; null where it has none.
std::shared_ptr<torch::jit::CompilationUnit> unit_of(const Graph& graph);

// Whether calls lead to a block of some kind, such as has_linear. What is called through an interface may be the method of any class
// of the unit that has it, and where no unit is known, anything. Each function is looked into once, for all that is asked.
class Leads {
 public:
  using IsWanted = bool (*)(const Block*);
  explicit Leads(IsWanted is_wanted, std::shared_ptr<torch::jit::CompilationUnit> unit = nullptr)
      : is_wanted_(is_wanted), unit_(std::move(unit)) {}

  bool from(torch::jit::Function& function);  // itself among them
  bool from(const Node* call);

  // The function that has such a block, once `from` has led to one; null where that is not known.
  const torch::jit::Function* where() const { return where_; }

 private:
  bool behind(const c10::InterfaceType& interface, const std::string& name);

  const IsWanted is_wanted_;
  const std::shared_ptr<torch::jit::CompilationUnit> unit_;
  const torch::jit::Function* where_ = nullptr;
  Functions seen_;
  std::set<std::pair<const c10::InterfaceType*, std::string>> asked_;
};

// Adds what calls were inlined of, as they are in a graph that was fused. The functions may be gone: they are not to be looked at.
void add_inlined(const torch::jit::GraphFunction& function, Functions& called);

// As its author would say it: "Gate.forward" of a class's method, else the function's own name.
std::string spoken_name(const torch::jit::Function& function);

// What stays called by the functions themselves, where other calls are inlined, and by `with` and through interfaces: each once.
std::vector<torch::jit::GraphFunction*> kept_calls(const Functions& functions);

// Those that call, directly or not, one that is behind them in the list.
std::vector<torch::jit::Function*> ahead_of_callees(const std::vector<torch::jit::Function*>& functions);

// The functions and all that they call, directly or not. A function that was fused when it was compiled is no module's
// method, and may be called, not inlined, by methods in which nothing was.
std::vector<torch::jit::GraphFunction*> with_called(const std::vector<torch::jit::GraphFunction*>& functions);

}  // namespace tailor
