#include "calls.h"

#include <torch/csrc/jit/ir/ir_views.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "pass.h"

namespace tailor {
namespace {

using torch::jit::Function;
using torch::jit::GraphFunction;

void for_each_call_here(Block* block, const std::function<void(Function&)>& visit) {
  for_each_block(block, [&](Block* inner) {
    for (const Node* node : inner->nodes()) {
      if (node->kind() == c10::prim::CallMethod) {
        if (const auto type = node->input(0)->type()->cast<c10::ClassType>())
          if (Function* method = type->findMethod(node->s(c10::attr::name))) visit(*method);
      } else if (node->kind() == c10::prim::CallFunction) {
        if (const auto type = node->input(0)->type()->cast<c10::FunctionType>()) visit(*type->function());
      }
    }
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
void for_each_call(Block* block, const std::function<void(Function&)>& visit) {
  for_each_call_here(block, visit);
  for_each_fork_here(block, [&](Node&, Graph& forked) { for_each_call(forked.block(), visit); });
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

std::shared_ptr<Graph> inlined(Graph& graph);

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

void add_kept(Block* block, std::vector<GraphFunction*>& kept) {
  for_each_fork_here(block, [&](Node&, Graph& forked) {
    add_kept(forked.block(), kept);
    std::vector<GraphFunction*> calls;
    for_each_call_here(forked.block(), [&](Function& callee) {
      if (auto* function = torch::jit::tryToGraphFunction(callee)) calls.push_back(function);
    });
    if (!calls.empty() && !inlined_fork(forked)) kept.insert(kept.end(), calls.begin(), calls.end());
  });
}

}  // namespace

std::shared_ptr<Graph> inlined_copy(const GraphFunction& function) { return inlined(*function.graph()); }

void add_called(Function& function, Functions& called) {
  auto* graph_function = torch::jit::tryToGraphFunction(function);
  if (!graph_function) return;
  for_each_call(graph_function->graph()->block(), [&](Function& callee) {
    if (called.insert(&callee).second) add_called(callee, called);
  });
}

bool leads_to(Function& function, bool (*is_wanted)(const Block*)) {
  Functions seen;
  const std::function<bool(Function&)> leads = [&](Function& one) {
    auto* graph_function = torch::jit::tryToGraphFunction(one);
    if (!graph_function || !seen.insert(&one).second) return false;
    Block* block = graph_function->graph()->block();
    bool found = is_wanted(block) || calls_an_interface(block);
    if (!found) for_each_call(block, [&](Function& callee) { found = found || leads(callee); });
    return found;
  };
  return leads(function);
}

void add_inlined(const GraphFunction& function, Functions& called) {
  SeenStacks seen;
  add_inlined(function.graph()->block(), called, seen);
}

std::vector<GraphFunction*> kept_calls(const Functions& functions) {
  std::vector<GraphFunction*> kept;
  for (Function* function : functions)
    if (auto* graph_function = torch::jit::tryToGraphFunction(*function))
      add_kept(graph_function->graph()->block(), kept);
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
