#include "calls.h"

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/ir/ir_views.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "effects.h"
#include "pass.h"

namespace tailor {
namespace {

using torch::jit::CompilationUnit;
using torch::jit::Function;
using torch::jit::GraphFunction;
using Visit = std::function<void(Function&)>;

// Which classes may stand behind an interface.
struct Unit {
  std::shared_ptr<CompilationUnit> classes;  // null where nobody knows
  bool modules = false;                      // whether they are to be looked at, too
};

// That of the graph's own class, where it has one.
std::shared_ptr<CompilationUnit> unit_of(const Graph& graph) {
  if (graph.inputs().empty()) return nullptr;
  const auto type = graph.inputs()[0]->type()->cast<c10::ClassType>();
  return type ? type->compilation_unit() : nullptr;
}

void for_each_behind(const c10::InterfaceType& interface, const std::string& name, const Unit& unit,
                     const Visit& visit) {
  for (Function* function : unit.classes->get_functions()) {  // null where one was taken back
    if (!function || function->name() != name || function->getSchema().arguments().empty()) continue;
    const auto self = function->getSchema().arguments()[0].type()->cast<c10::ClassType>();
    if (self && (unit.modules || !self->is_module()) && self->isSubtypeOf(interface)) visit(*function);
  }
}

// What the pass does not inline: torch, neither.
void for_each_distant_callee(const Node* node, const Unit& unit, const Visit& visit) {
  if (node->kind() == c10::prim::CallMethod) {
    const auto interface = node->input(0)->type()->cast<c10::InterfaceType>();
    if (interface && unit.classes) for_each_behind(*interface, node->s(c10::attr::name), unit, visit);
  } else if (is_block_of_no_mode(node)) {
    if (const auto type = node->input(0)->type()->cast<c10::ClassType>())
      if (Function* method = type->findMethod(node->kind() == c10::prim::Enter ? "__enter__" : "__exit__"))
        visit(*method);
  }
}

void for_each_callee(const Node* node, const Unit& unit, const Visit& visit) {
  if (node->kind() == c10::prim::CallFunction) {
    if (const auto type = node->input(0)->type()->cast<c10::FunctionType>()) visit(*type->function());
  } else if (const auto type =
                 node->kind() == c10::prim::CallMethod ? node->input(0)->type()->cast<c10::ClassType>() : nullptr) {
    if (Function* method = type->findMethod(node->s(c10::attr::name))) visit(*method);
  } else {
    for_each_distant_callee(node, unit, visit);
  }
}

template <class ForEach>
void for_each_call_here(Block* block, const Unit& unit, const Visit& visit, ForEach for_each) {
  for_each_block(block, [&](Block* inner) {
    for (const Node* node : inner->nodes()) for_each(node, unit, visit);
  });
}

template <class Visitor>
void for_each_fork_here(Block* block, const Visitor& visit) {
  for_each_block(block, [&](Block* inner) {
    for (Node* node : inner->nodes())
      if (const auto forked = forked_graph(node)) visit(*node, *forked);
  });
}

// Inlining may show what an object is of which the graph knows no more than what it can do.
bool calls_an_interface(Block* top) {
  bool found = false;
  for_each_block(top, [&](Block* block) {
    for (Node* node : block->nodes()) {
      found = found || (node->kind() == c10::prim::CallMethod && node->input(0)->type()->cast<c10::InterfaceType>());
      if (const auto forked = forked_graph(node)) found = found || calls_an_interface(forked->block());
    }
  });
  return found;
}

// The functions that a graph calls, directly or in what it forks.
void for_each_call(Block* block, const Unit& unit, const Visit& visit) {
  for_each_call_here(block, unit, visit, for_each_callee);
  for_each_fork_here(block, [&](Node&, Graph& forked) { for_each_call(forked.block(), unit, visit); });
}

// A loop that goes on while a condition holds, or that may be left early.
bool has_while(Block* top) {
  bool found = false;
  for_each_block(top, [&](Block* block) {
    for (Node* node : block->nodes())
      if (node->kind() == c10::prim::Loop)
        found = found || torch::jit::LoopView(node).loopType() != torch::jit::LoopView::For;
  });
  return found;
}

std::shared_ptr<Graph> inlined(Graph& original);

// What is forked with its calls inlined; null where they have to stay. A file of the graph would have their loops in the forked
// part, whose constants torch makes arguments of it when it reads the file, a loop's bound among them. It then sees no
// `while` in the loop any more, and cannot write it a second time.
std::shared_ptr<Graph> inlined_fork(Graph& forked) {
  auto graph = inlined(forked);
  return has_while(graph->block()) ? nullptr : graph;
}

using Stack = torch::jit::InlinedCallStackPtr;

// The calls of `outer`, and within the last of them those of `inner`. Functions may be gone: they are not asked for their names.
Stack within(const Stack& outer, const Stack& inner) {
  std::string name = outer->function_name();  // torch moves it away
  return c10::make_intrusive<torch::jit::InlinedCallStack>(outer->callee() ? within(*outer->callee(), inner) : inner,
                                                           outer->function(), outer->source_range(),
                                                           outer->module_instance(), name);
}

// Of nodes of a callee whose call was inlined itself: torch says no more of them than that they are the callee's.
class Within {
 public:
  explicit Within(Stack outer) : outer_(std::move(outer)) {}
  void put(Node* node) {
    if (const auto own = node->callstack(); own && *own) {
      Stack& whole = known_[own->get()];
      if (!whole) whole = within(outer_, *own);
      node->setCallStack(whole);
    } else {
      node->setCallStack(outer_);
    }
    for (Block* block : node->blocks())
      for (Node* inner : block->nodes()) put(inner);
  }

 private:
  Stack outer_;
  std::unordered_map<const torch::jit::InlinedCallStack*, Stack> known_;
};

// What a fork runs, a graph that is nobody else's.
void inline_in_fork(Node* node) {
  const auto forked = forked_graph(node);
  if (!forked) return;
  auto own = inlined_fork(*forked);
  node->g_(c10::attr::Subgraph, own ? std::move(own) : copy_of(*forked));
}

// From outside to inside: what a call is replaced by is looked at next, and nothing is copied twice, however deep calls are.
// torch's Inline leaves alone what is forked, and takes of each callee what its optimiser has made of it: that has the casts in it
// of whoever is inside `with autocast` just now, and is not the graph that the pass has where the callee is fused by itself.
void inline_calls(Block* block) {
  for (Node* node = block->param_node()->next(); node != block->return_node();) {
    inline_in_fork(node);
    auto* callee = torch::jit::tryToGraphFunction(node);
    if (!callee) {
      for (Block* inner : node->blocks()) inline_calls(inner);
      node = node->next();
      continue;
    }
    Node* const before = node->prev();
    Node* const after = node->next();
    const auto stack = node->callstack();
    if (node->kind() == c10::prim::CallFunction) node->removeInput(0);
    torch::jit::inlineCallTo(node, callee, callee->graph().get());
    node = before->next();
    if (!stack || !*stack) continue;
    Within within_call(*stack);
    for (Node* inlined = node; inlined != after; inlined = inlined->next()) within_call.put(inlined);
  }
}

std::shared_ptr<Graph> inlined(Graph& original) {
  auto graph = copy_of(original);
  inline_calls(graph->block());
  return graph;
}

// Nodes of one call share theirs.
using SeenStacks = std::unordered_set<const torch::jit::InlinedCallStack*>;

void add_inlined(Block* top, Functions& called, SeenStacks& seen) {
  for_each_block(top, [&](Block* block) {
    for (const Node* node : block->nodes())
      if (const auto stack = node->callstack(); stack && *stack && seen.insert(stack->get()).second)
        for (const auto& call : (*stack)->vec()) called.insert(std::get<0>(call));
  });
  for_each_fork_here(top, [&](Node&, Graph& forked) { add_inlined(forked.block(), called, seen); });
}

void add_kept(Block* block, const Unit& unit, std::vector<GraphFunction*>& kept) {
  const auto add_to = [](std::vector<GraphFunction*>& calls) {
    return [&](Function& callee) {
      if (auto* function = torch::jit::tryToGraphFunction(callee)) calls.push_back(function);
    };
  };
  for_each_call_here(block, unit, add_to(kept), for_each_distant_callee);
  for_each_fork_here(block, [&](Node&, Graph& forked) {
    add_kept(forked.block(), unit, kept);
    std::vector<GraphFunction*> calls;
    for_each_call_here(forked.block(), unit, add_to(calls), for_each_callee);
    if (!calls.empty() && !inlined_fork(forked)) kept.insert(kept.end(), calls.begin(), calls.end());
  });
}

void add_called(Function& function, Unit unit, Functions& called) {
  auto* graph_function = torch::jit::tryToGraphFunction(function);
  if (!graph_function) return;
  if (auto own = unit_of(*graph_function->graph())) unit.classes = std::move(own);
  for_each_call(graph_function->graph()->block(), unit, [&](Function& callee) {
    if (called.insert(&callee).second) add_called(callee, unit, called);
  });
}

using IsWanted = bool (*)(const Block*);

bool leads_to(Function& function, IsWanted is_wanted, const Unit& unit, Functions& seen) {
  auto* graph_function = torch::jit::tryToGraphFunction(function);
  if (!graph_function || !seen.insert(&function).second) return false;
  Block* block = graph_function->graph()->block();
  bool found = is_wanted(block) || (!unit.classes && calls_an_interface(block));
  if (!found)
    for_each_call(block, unit, [&](Function& callee) { found = found || leads_to(callee, is_wanted, unit, seen); });
  return found;
}

}  // namespace

std::shared_ptr<Graph> inlined_copy(const GraphFunction& function) { return inlined(*function.graph()); }

void add_called(Function& function, Functions& called) { add_called(function, Unit(), called); }

bool leads_to(Function& function, IsWanted is_wanted) {
  Functions seen;
  return leads_to(function, is_wanted, Unit(), seen);
}

bool may_lead_to(const Node* call, IsWanted is_wanted) {
  const Unit unit{unit_of(*call->owningGraph()), true};
  const bool is_unknown = call->kind() == c10::prim::CallMethod && call->input(0)->type()->cast<c10::InterfaceType>();
  if (is_unknown && !unit.classes) return true;
  Functions seen;
  bool found = false;
  for_each_callee(call, unit, [&](Function& callee) { found = found || leads_to(callee, is_wanted, unit, seen); });
  return found;
}

void add_inlined(const GraphFunction& function, Functions& called) {
  SeenStacks seen;
  add_inlined(function.graph()->block(), called, seen);
}

std::vector<GraphFunction*> kept_calls(const Functions& functions) {
  std::vector<std::shared_ptr<Graph>> graphs;
  Unit unit;
  for (Function* function : functions) {
    auto* graph_function = torch::jit::tryToGraphFunction(*function);
    if (!graph_function) continue;
    graphs.push_back(graph_function->graph());
    if (!unit.classes) unit.classes = unit_of(*graphs.back());
  }
  std::vector<GraphFunction*> kept;
  for (const auto& graph : graphs) add_kept(graph->block(), unit, kept);
  // In the same order each time, for reports.
  std::sort(kept.begin(), kept.end(), [](const auto* one, const auto* other) {
    return one->qualname().qualifiedName() < other->qualname().qualifiedName();
  });
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  return kept;
}

std::vector<GraphFunction*> with_called(const std::vector<GraphFunction*>& functions) {
  Functions called(functions.begin(), functions.end());
  for (GraphFunction* function : functions) add_called(*function, called);
  std::vector<GraphFunction*> all;
  for (Function* function : called)
    if (auto* graph_function = torch::jit::tryToGraphFunction(*function)) all.push_back(graph_function);
  return all;
}

}  // namespace tailor
