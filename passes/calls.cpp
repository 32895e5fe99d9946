#include "calls.h"

#include <torch/csrc/jit/ir/ir_views.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "declared.h"
#include "effects.h"
#include "forks.h"
#include "inlined_size.h"

namespace tailor {
namespace {

using c10::ClassTypePtr;
using c10::InterfaceType;
using torch::jit::CompilationUnit;
using torch::jit::Function;
using torch::jit::GraphFunction;
using Visit = std::function<void(Function&)>;
// For a call of which the graph knows an interface, and the method's name.
using VisitInterface = std::function<void(const InterfaceType&, const std::string&)>;

bool has_own_class(const Node* call) { return call->input(0)->type()->cast<c10::ClassType>() != nullptr; }

// Of an object that may be of several types, that of each.
void for_each_method(const c10::TypePtr& type, const std::string& name, const Visit& visit,
                     const VisitInterface& behind) {
  if (const auto known = type->cast<c10::ClassType>()) {
    if (Function* method = known->findMethod(name)) visit(*method);
  } else if (const auto interface = type->cast<InterfaceType>()) {
    behind(*interface, name);
  } else {
    for (const auto& one : type->containedTypes()) for_each_method(one, name, visit, behind);
  }
}

// What the pass does not inline: torch, neither.
void for_each_distant_callee(const Node* node, const Visit& visit, const VisitInterface& behind) {
  if (node->kind() == c10::prim::CallMethod && !has_own_class(node)) {
    for_each_method(node->input(0)->type(), node->s(c10::attr::name), visit, behind);
  } else if (is_block_of_no_mode(node)) {
    for_each_method(node->input(0)->type(), node->kind() == c10::prim::Enter ? "__enter__" : "__exit__", visit, behind);
  }
}

void for_each_callee(const Node* node, const Visit& visit, const VisitInterface& behind) {
  if (node->kind() == c10::prim::CallFunction) {
    if (const auto type = node->input(0)->type()->cast<c10::FunctionType>()) visit(*type->function());
  } else if (node->kind() == c10::prim::CallMethod) {
    for_each_method(node->input(0)->type(), node->s(c10::attr::name), visit, behind);
  } else {
    for_each_distant_callee(node, visit, behind);
  }
}

// The functions that a graph calls, directly or in what it forks.
void for_each_call(Block* block, const Visit& visit, const VisitInterface& behind) {
  for_each_block(block, [&](Block* inner) {
    for (const Node* node : inner->nodes()) for_each_callee(node, visit, behind);
  });
  for_each_fork(block,
                [&](Node&, const std::shared_ptr<Graph>& forked) { for_each_call(forked->block(), visit, behind); });
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

// Of a function that is to be inlined, in what is forked, too.
bool has_call(Block* top) {
  bool found = false;
  for_each_block(top, [&](Block* block) {
    for (Node* node : block->nodes()) found = found || torch::jit::tryToGraphFunction(node);
  });
  for_each_fork(top, [&](Node&, const std::shared_ptr<Graph>& forked) { found = found || has_call(forked->block()); });
  return found;
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

class Inliner {
 public:
  Inliner(Block* top, const Instead& instead) : declared_(top), instead_(instead) {}

  std::shared_ptr<Graph> inlined(const GraphFunction& function) { return inlined(*graph_of(function, instead_)); }

  std::shared_ptr<Graph> inlined(Graph& original) {
    auto graph = copy_of(original);
    inline_calls(graph->block());
    return graph;
  }

  // What is forked with its calls inlined; null where they have to stay. A file of the graph would have their loops in the forked
  // part, whose constants torch makes arguments of it when it reads the file, a loop's bound among them. It then sees no
  // `while` in the loop any more, and cannot write it a second time.
  std::shared_ptr<Graph> inlined_fork(Graph& forked) {
    auto graph = inlined(forked);
    return has_while(graph->block()) ? nullptr : graph;
  }

 private:
  // What a fork runs, a graph that is nobody else's: whoever copied the node has copied it, too.
  void inline_in_fork(Node* node) {
    const auto forked = forked_graph(node);
    if (!forked || !has_call(forked->block())) return;
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
      declared_.cast(node, *callee);
      Node* const before = node->prev();
      Node* const after = node->next();
      const auto stack = node->callstack();
      if (node->kind() == c10::prim::CallFunction) node->removeInput(0);
      torch::jit::inlineCallTo(node, callee, graph_of(*callee, instead_).get());
      node = before->next();
      if (!stack || !*stack) continue;
      Within within_call(*stack);
      for (Node* inlined = node; inlined != after; inlined = inlined->next()) within_call.put(inlined);
    }
  }

  Declared declared_;
  const Instead& instead_;
};

// Nodes of one call share theirs.
using SeenStacks = std::unordered_set<const torch::jit::InlinedCallStack*>;

void add_inlined(Block* top, Functions& called, SeenStacks& seen) {
  for_each_block(top, [&](Block* block) {
    for (const Node* node : block->nodes())
      if (const auto stack = node->callstack(); stack && *stack && seen.insert(stack->get()).second)
        for (const auto& call : (*stack)->vec()) called.insert(std::get<0>(call));
  });
  for_each_fork(top, [&](Node&, const std::shared_ptr<Graph>& forked) { add_inlined(forked->block(), called, seen); });
}

// Classes of objects that functions make, but for modules: these nobody makes in a script.
using Classes = std::unordered_set<ClassTypePtr>;

void add_made(Block* block, Classes& made) {
  for_each_block(block, [&](Block* inner) {
    for (const Node* node : inner->nodes())
      if (node->kind() == c10::prim::CreateObject)
        if (const auto type = node->output()->type()->cast<c10::ClassType>()) made.insert(type);
  });
  for_each_fork(block, [&](Node&, const std::shared_ptr<Graph>& forked) { add_made(forked->block(), made); });
}

void for_each_made(const Classes& made, const InterfaceType& interface, const std::string& name, const Visit& visit) {
  for (const auto& type : made)
    if (type->isSubtypeOf(interface))
      if (Function* method = type->findMethod(name)) visit(*method);
}

void add_kept(Block* block, const Classes& made, std::vector<GraphFunction*>& kept) {
  const auto add_to = [](std::vector<GraphFunction*>& calls) -> Visit {
    return [&](Function& callee) {
      if (auto* function = torch::jit::tryToGraphFunction(callee)) calls.push_back(function);
    };
  };
  const auto behind = [&](const Visit& visit) -> VisitInterface {
    return [&made, visit](const InterfaceType& interface, const std::string& name) {
      for_each_made(made, interface, name, visit);
    };
  };
  const Visit keep = add_to(kept);
  const VisitInterface keep_behind = behind(keep);
  for_each_block(block, [&](Block* inner) {
    for (const Node* node : inner->nodes()) for_each_distant_callee(node, keep, keep_behind);
  });
  for_each_fork(block, [&](Node&, const std::shared_ptr<Graph>& forked) {
    add_kept(forked->block(), made, kept);
    std::vector<GraphFunction*> calls;
    for_each_block(forked->block(), [&](Block* inner) {
      for (const Node* node : inner->nodes()) for_each_callee(node, add_to(calls), behind(add_to(calls)));
    });
    const Instead nothing;
    if (!calls.empty() && !Inliner(block, nothing).inlined_fork(*forked))
      kept.insert(kept.end(), calls.begin(), calls.end());
  });
}

}  // namespace

std::shared_ptr<Graph> graph_of(const GraphFunction& function, const Instead& instead) {
  const auto other = instead.find(&function);
  return other == instead.end() ? function.graph() : other->second;
}

std::shared_ptr<Graph> inlined_copy(const GraphFunction& function, const Instead& instead) {
  require_small(*graph_of(function, instead), instead);
  return Inliner(function.graph()->block(), instead).inlined(function);
}

Functions called_by(const Functions& functions) {
  Functions reached = functions, called;
  std::vector<Function*> open(functions.begin(), functions.end());
  Classes made;
  std::set<std::pair<const InterfaceType*, std::string>> asked;
  const Visit reach = [&](Function& callee) {
    called.insert(&callee);
    if (reached.insert(&callee).second) open.push_back(&callee);
  };
  while (!open.empty()) {
    auto* function = torch::jit::tryToGraphFunction(*open.back());
    open.pop_back();
    if (function) {
      add_made(function->graph()->block(), made);
      for_each_call(function->graph()->block(), reach,
                    [&](const InterfaceType& interface, const std::string& name) { asked.emplace(&interface, name); });
    }
    if (!open.empty()) continue;
    for (const auto& [interface, name] : asked) for_each_made(made, *interface, name, reach);
  }
  return called;
}

bool Leads::behind(const InterfaceType& interface, const std::string& name) {
  if (!unit_) return true;
  if (!asked_.emplace(&interface, name).second) return false;
  const auto functions = unit_->get_functions();  // null where one was taken back
  return std::any_of(functions.begin(), functions.end(), [&](Function* function) {
    if (!function || function->name() != name || function->getSchema().arguments().empty()) return false;
    const auto self = function->getSchema().arguments()[0].type()->cast<c10::ClassType>();
    return self && self->isSubtypeOf(interface) && from(*function);
  });
}

bool Leads::from(Function& function) {
  auto* graph_function = torch::jit::tryToGraphFunction(function);
  if (!graph_function || !seen_.insert(&function).second) return false;
  Block* block = graph_function->graph()->block();
  if (is_wanted_(block)) {
    where_ = &function;
    return true;
  }
  bool found = false;
  for_each_call(
      block, [&](Function& callee) { found = found || from(callee); },
      [&](const InterfaceType& interface, const std::string& name) { found = found || behind(interface, name); });
  return found;
}

bool Leads::from(const Node* call) {
  bool found = false;
  for_each_callee(
      call, [&](Function& callee) { found = found || from(callee); },
      [&](const InterfaceType& interface, const std::string& name) { found = found || behind(interface, name); });
  return found;
}

std::shared_ptr<CompilationUnit> unit_of(const Graph& graph) {
  for (const Value* input : graph.inputs())
    if (const auto type = input->type()->cast<c10::ClassType>())
      if (auto unit = type->compilation_unit()) return unit;
  return nullptr;
}

std::string spoken_name(const Function& function) {
  const auto& arguments = function.getSchema().arguments();
  const auto self = arguments.empty() ? nullptr : arguments[0].type()->cast<c10::ClassType>();
  const bool is_method = self && self->name() && self->name()->qualifiedName() == function.qualname().prefix();
  return (is_method ? self->name()->name() + "." : "") + function.name();
}

void for_each_known_callee(Block* block, const std::function<void(Function&)>& visit) {
  for_each_call(block, visit, [](const InterfaceType&, const std::string&) {});
}

void add_inlined(const GraphFunction& function, Functions& called) {
  SeenStacks seen;
  add_inlined(function.graph()->block(), called, seen);
}

std::vector<GraphFunction*> kept_calls(const Functions& functions) {
  Classes made;
  std::vector<std::shared_ptr<Graph>> graphs;
  for (Function* function : functions)
    if (auto* graph_function = torch::jit::tryToGraphFunction(*function)) graphs.push_back(graph_function->graph());
  for (const auto& graph : graphs) add_made(graph->block(), made);
  std::vector<GraphFunction*> kept;
  for (const auto& graph : graphs) add_kept(graph->block(), made, kept);
  // In the same order each time, for reports.
  std::sort(kept.begin(), kept.end(), [](const auto* one, const auto* other) {
    return one->qualname().qualifiedName() < other->qualname().qualifiedName();
  });
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  return kept;
}

std::vector<Function*> ahead_of_callees(const std::vector<Function*>& functions) {
  std::unordered_map<const Function*, std::size_t> places;
  for (std::size_t i = 0; i < functions.size(); ++i) places.emplace(functions[i], i);
  std::unordered_map<const Function*, std::size_t> last;  // of the places of those that it calls
  const std::function<std::size_t(Function&)> last_of = [&](Function& function) {
    if (const auto known = last.find(&function); known != last.end()) return known->second;
    std::size_t found = last[&function] = 0;
    const Visit visit = [&](Function& callee) {
      const auto place = places.find(&callee);
      found = std::max({found, place == places.end() ? 0 : place->second, last_of(callee)});
    };
    if (auto* graph_function = torch::jit::tryToGraphFunction(function))
      for_each_known_callee(graph_function->graph()->block(), visit);
    return last[&function] = found;
  };
  std::vector<Function*> ahead;
  for (std::size_t i = 0; i + 1 < functions.size(); ++i)
    if (last_of(*functions[i]) > i) ahead.push_back(functions[i]);
  return ahead;
}

std::vector<GraphFunction*> with_called(const std::vector<GraphFunction*>& functions) {
  Functions reached(functions.begin(), functions.end());
  reached.merge(called_by(reached));
  std::vector<GraphFunction*> all;
  for (Function* function : reached)
    if (auto* graph_function = torch::jit::tryToGraphFunction(*function)) all.push_back(graph_function);
  return all;
}

}  // namespace tailor
