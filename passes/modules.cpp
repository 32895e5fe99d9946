#include "modules.h"

#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <functional>
#include <unordered_set>

#include "file.h"
#include "graph.h"
#include "match.h"
#include "plans.h"

namespace tailor {
namespace {

using torch::jit::Function;
using torch::jit::GraphFunction;
using torch::jit::Module;

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

// torch's Inline leaves alone what is forked. It takes callees as it once optimised them, and if its optimiser was off then, with
// the calls that they make.
void inline_all(Graph& graph) {
  constexpr int deepest = 50;
  bool calls = true;
  for (int i = 0; calls && i < deepest; ++i) {
    torch::jit::Inline(graph);
    calls = false;
    for_each_call_here(graph.block(),
                       [&](Function& callee) { calls = calls || torch::jit::tryToGraphFunction(callee) != nullptr; });
  }
  for_each_block(graph.block(), [](Block* block) {
    for (const Node* node : block->nodes())
      if (const auto forked = forked_graph(node)) inline_all(*forked);
  });
}

std::shared_ptr<Graph> inlined_copy(const GraphFunction& function) {
  auto graph = copy_of(*function.graph());
  inline_all(*graph);
  return graph;
}

// The functions that a graph calls, directly or in what it forks.
void for_each_call(Block* block, const std::function<void(Function&)>& visit) {
  for_each_call_here(block, visit);
  for_each_block(block, [&](Block* inner) {
    for (const Node* node : inner->nodes())
      if (const auto forked = forked_graph(node)) for_each_call(forked->block(), visit);
  });
}

// Calls that were inlined, as a graph's are when it is fused. The functions may be gone: they are not to be looked at.
class InlinedCalls {
 public:
  explicit InlinedCalls(std::unordered_set<Function*>& called) : called_(called) {}

  void add(const Block* block) {
    for_each_block(const_cast<Block*>(block), [&](Block* inner) {
      for (const Node* node : inner->nodes()) {
        if (const auto stack = node->callstack(); stack && *stack && seen_.insert(stack->get()).second)
          for (const auto& call : (*stack)->vec()) called_.insert(std::get<0>(call));
        if (const auto forked = forked_graph(node)) add(forked->block());
      }
    });
  }

 private:
  std::unordered_set<Function*>& called_;
  std::unordered_set<const torch::jit::InlinedCallStack*> seen_;  // nodes of one call share theirs
};

void add_called(Function& function, std::unordered_set<Function*>& called) {
  auto* graph_function = torch::jit::tryToGraphFunction(function);
  if (!graph_function) return;
  for_each_call(graph_function->graph()->block(), [&](Function& callee) {
    if (called.insert(&callee).second) add_called(callee, called);
  });
}

// The functions and all that they call, directly or not. A function that was fused when it was compiled is no module's
// method, and may be called, not inlined, by methods in which nothing was.
std::vector<GraphFunction*> with_called(const std::vector<Function*>& functions) {
  std::unordered_set<Function*> called(functions.begin(), functions.end());
  for (Function* function : functions) add_called(*function, called);
  std::vector<GraphFunction*> all;
  for (Function* function : called)
    if (auto* graph_function = torch::jit::tryToGraphFunction(*function)) all.push_back(graph_function);
  return all;
}

struct Place {
  std::string path;  // of the submodule, empty for the module itself
  Module module;
};

void collect(const Module& module, const std::string& path, std::unordered_set<const c10::Type*>& seen_types,
             std::vector<Place>& children_first) {
  if (!seen_types.insert(module.type().get()).second) return;
  for (const auto& child : module.named_children())
    collect(child.value, path.empty() ? child.name : path + "." + child.name, seen_types, children_first);
  children_first.push_back({path, module});
}

// One module of every class below `module`, itself last.
std::vector<Place> one_of_every_class(const Module& module) {
  std::unordered_set<const c10::Type*> seen_types;
  std::vector<Place> result;
  collect(module, "", seen_types, result);
  return result;
}

// The method's name in a report: "forward", "encoder.forward".
std::string full_name(const Place& place, const Function& method) {
  return place.path.empty() ? method.name() : place.path + "." + method.name();
}

// What a linear may be called after its graph was saved: that takes away how it came there, but neither whose attribute the
// weight is nor, where he has one, its author's line. One name for the module that holds the weight, one for the module that
// holds that, and so on; the last is the longest, and what the linear is called in its own graph.
std::vector<std::string> names_of(const Node* node, Value* weight) {
  const std::string line = has_users_line(node) ? source_line(node) : "";
  std::vector<std::string> names;
  if (!line.empty()) names.push_back(line);
  while (weight->node()->kind() != c10::prim::GetAttr && !weight->node()->inputs().empty())
    weight = weight->node()->input(0);  // a transpose, or one of our guards
  std::string path;
  for (; weight->node()->kind() == c10::prim::GetAttr; weight = weight->node()->input()) {
    path = "." + weight->node()->s(c10::attr::name) + path;
    const std::string owner = weight->node()->input()->type()->repr_str();
    names.push_back(owner + path);
    if (!line.empty()) names.push_back(owner + path + " in " + line);
  }
  return names;
}

// The weight of the linear that the node begins, or that is fused in it; null where there is none.
Value* weight_at(Node* node) {
  if (fused_chain(node)) return node->input(1);
  if (is_scaled_linear(node)) return node->input(2);
  const auto linears = linears_at(node);
  return linears.empty() ? nullptr : linears.front().weight;
}

// Visits each linear's names, and the rule of the chain that it is fused in, or "".
void for_each_linear(Block* top, const std::function<void(const std::vector<std::string>&, std::string_view)>& visit) {
  for_each_block(top, [&](Block* block) {
    for (Node* node : block->nodes()) {
      const Chain* chain = fused_chain(node);
      if (Value* weight = weight_at(node)) visit(names_of(node, weight), chain ? chain->name : "");
      if (const auto forked = forked_graph(node)) for_each_linear(forked->block(), visit);
    }
  });
}

// The linears of functions, as they are once those are fused. The file of a module that was fused has its submodules' graphs twice,
// inlined and by themselves, and says nowhere that they are the same. Two methods may have one linear, from a third, and be fused
// otherwise.
class Linears {
 public:
  void add(const GraphFunction& function) {
    for_each_linear(fused(function)->block(), [&](const auto& names, std::string_view rule) {
      for (const std::string& name : names) {
        names_.insert(name);
        if (!rule.empty()) names_.insert(in_chain(name, rule));
      }
    });
  }
  bool include(const GraphFunction& function) const {
    bool all = true;
    for_each_linear(fused(function)->block(), [&](const auto& names, std::string_view rule) {
      all = all && !names.empty() && names_.contains(rule.empty() ? names.back() : in_chain(names.back(), rule));
    });
    return all;
  }

 private:
  static std::shared_ptr<Graph> fused(const GraphFunction& function) {
    PassOptions options;
    options.reasons = false;
    auto graph = inlined_copy(function);
    run_pass(graph, options);
    return graph;
  }
  static std::string in_chain(const std::string& name, std::string_view rule) { return std::string(rule) + " " + name; }

  std::unordered_set<std::string> names_;
};

// torch.nn's Linear, which no method calls, is a linear with nothing after it: its weight is read elsewhere, or not at all.
bool is_bare_linear(const Function& method) {
  return method.qualname().qualifiedName().starts_with("__torch__.torch.nn.modules.linear.");
}

std::unordered_set<const Function*> entries_of(const std::vector<Place>& places) {
  const Place& top = places.back();
  const bool is_container = top.module.type()->methods().empty();
  std::unordered_set<Function*> called;
  for (const Place& place : places)
    for (Function* method : functions_of(place.module)) add_called(*method, called);
  std::unordered_set<const Function*> entries;
  std::vector<GraphFunction*> doubtful;  // callers first
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    for (Function* method : functions_of(place->module)) {
      auto* function = torch::jit::tryToGraphFunction(*method);
      if (!function) continue;
      if (&*place == &top)
        entries.insert(function);
      else if (!called.contains(function) && (is_container || !is_bare_linear(*function)))
        doubtful.push_back(function);
    }
  }
  if (doubtful.empty()) return entries;
  InlinedCalls inlined(called);
  Linears seen;
  for (const Place& place : places) {
    for (Function* method : functions_of(place.module)) {
      auto* function = torch::jit::tryToGraphFunction(*method);
      if (!function) continue;
      inlined.add(function->graph()->block());
      if (entries.contains(function)) seen.add(*function);
    }
  }
  for (GraphFunction* function : doubtful) {
    if (called.contains(function)) continue;
    if (seen.include(*function)) continue;
    seen.add(*function);
    entries.insert(function);
  }
  return entries;
}

// Functions that a caller of the module may run and whose linears no other such function has in it: the module's own, and
// those of submodules that nothing calls, or nobody knows who, as it is through an interface.
template <class Visitor>
void for_each_entry(const std::vector<Place>& places, Visitor&& visit) {
  const auto entries = entries_of(places);
  for (const Place& place : places)
    for (Function* method : functions_of(place.module))
      if (entries.contains(method)) visit(place, *torch::jit::tryToGraphFunction(*method));
}

void check_rules(const Options& options) {
  for (const std::string& name : options.rules) {
    if (find_chain(name)) continue;
    std::string all;
    for (const std::string& known : rules()) all += (all.empty() ? "" : ", ") + known;
    TORCH_CHECK_VALUE(false, "Tailor has no rule '", name, "'. It has ", all, ".");
  }
}

void append(std::vector<Site>& to, std::vector<Site> more) { to.insert(to.end(), more.begin(), more.end()); }

// Takes specimens of the fused sites only where somebody wants them: each is two graphs.
Report fuse_methods(Module& module, const Options& options, std::vector<Specimen>* specimens) {
  check_rules(options);
  const auto places = one_of_every_class(module);
  std::unordered_set<const Function*> entries;
  for_each_entry(places, [&](const Place&, GraphFunction& function) { entries.insert(&function); });

  Report report;
  std::vector<GraphFunction*> touched;
  for (const Place& place : places) {
    for (Function* method : functions_of(place.module)) {
      PassOptions pass;
      pass.rules = options.rules;
      pass.method = full_name(place, *method);
      std::vector<Specimen> taken;
      if (specimens) pass.specimens = &taken;
      auto sites = fuse_function(*method, pass);
      for (Specimen& specimen : taken) {
        for (Origin& origin : specimen.inputs)
          if (!origin.attribute.empty() && !place.path.empty()) origin.attribute = place.path + "." + origin.attribute;
        specimens->push_back(std::move(specimen));
      }
      if (entries.contains(method)) append(report.sites, std::move(sites));
      if (auto* function = torch::jit::tryToGraphFunction(*method)) touched.push_back(function);
    }
  }
  for (GraphFunction* function : touched) forget_plans(*function);
  return report;
}

std::vector<Function*> methods_of(const std::vector<Place>& places) {
  std::vector<Function*> all;
  for (const Place& place : places)
    for (Function* method : functions_of(place.module)) all.push_back(method);
  return all;
}

void unfuse_all(const std::vector<Function*>& functions) {
  for (GraphFunction* function : with_called(functions)) {
    std::vector<Site> counted_elsewhere;
    if (unfuse_graph(function->graph(), counted_elsewhere, "")) drop_unread(function->graph()->block());
    forget_plans(*function);
  }
}

}  // namespace

std::vector<Function*> functions_of(const Module& module) {
  const auto type = module.type();
  std::vector<Function*> all = type->methods();
  for (const auto* hooks : {&type->getForwardPreHooks(), &type->getForwardHooks()})
    all.insert(all.end(), hooks->begin(), hooks->end());
  return all;
}

std::vector<Site> fuse_function(Function& function, const PassOptions& options) {
  auto* graph_function = torch::jit::tryToGraphFunction(function);
  if (!graph_function) return {};
  const auto graph = inlined_copy(*graph_function);
  const PassResult result = run_pass(graph, options);
  if (result.changed) {
    drop_unread(graph->block());
    set_graph(*graph_function, graph);
  }
  return result.sites;
}

Report fuse(Module& module, const Options& options, std::vector<Specimen>& specimens) {
  return fuse_methods(module, options, &specimens);
}

Report fuse(Module& module, const Options& options) { return fuse_methods(module, options, nullptr); }

Report fuse(Function& function) {
  PassOptions pass;
  pass.method = function.name();
  Report report{fuse_function(function, pass)};
  if (auto* graph_function = torch::jit::tryToGraphFunction(function)) forget_plans(*graph_function);
  return report;
}

Report inspect(Function& function) {
  auto* graph_function = torch::jit::tryToGraphFunction(function);
  if (!graph_function) return {};
  PassOptions pass;
  pass.method = function.name();
  return {run_pass(inlined_copy(*graph_function), pass).sites};
}

Report inspect(const Module& module, const Options& options) {
  check_rules(options);
  Report report;
  for_each_entry(one_of_every_class(module), [&](const Place& place, GraphFunction& function) {
    PassOptions pass;
    pass.rules = options.rules;
    pass.method = full_name(place, function);
    append(report.sites, run_pass(inlined_copy(function), pass).sites);
  });
  return report;
}

Report unfuse(Module& module) {
  const auto places = one_of_every_class(module);
  Report report;  // as fuse counts: each entry with all that it calls
  for_each_entry(places, [&](const Place& place, GraphFunction& function) {
    unfuse_graph(inlined_copy(function), report.sites, full_name(place, function));
  });
  unfuse_all(methods_of(places));
  return report;
}

Report unfuse(Function& function) {
  Report report;
  if (auto* graph_function = torch::jit::tryToGraphFunction(function))
    unfuse_graph(inlined_copy(*graph_function), report.sites, function.name());
  unfuse_all({&function});
  return report;
}

bool needs_tailor(const Module& module) {
  const auto all = with_called(methods_of(one_of_every_class(module)));
  return std::any_of(all.begin(), all.end(),
                     [](GraphFunction* function) { return has_tailor_op(function->graph()->block()); });
}

std::vector<std::string> rules() {
  std::vector<std::string> names;
  for (const Chain* chain : all_chains()) names.emplace_back(chain->name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tailor
