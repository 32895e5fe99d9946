#include "modules.h"

#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <functional>
#include <unordered_set>

#include "graph.h"
#include "plans.h"

namespace tailor {
namespace {

using torch::jit::Function;
using torch::jit::GraphFunction;
using torch::jit::Module;

// torch's Inline leaves alone what is forked.
void inline_all(Graph& graph) {
  torch::jit::Inline(graph);
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

// The functions that a graph calls, directly.
void for_each_call(const Block* block, const std::function<void(Function&)>& visit) {
  for_each_block(const_cast<Block*>(block), [&](Block* inner) {
    for (const Node* node : inner->nodes()) {
      if (node->kind() == c10::prim::CallMethod) {
        if (const auto type = node->input(0)->type()->cast<c10::ClassType>())
          if (Function* method = type->findMethod(node->s(c10::attr::name))) visit(*method);
      } else if (node->kind() == c10::prim::CallFunction) {
        if (const auto type = node->input(0)->type()->cast<c10::FunctionType>()) visit(*type->function());
      }
      if (const auto forked = forked_graph(node)) for_each_call(forked->block(), visit);
    }
  });
}

// Calls that were inlined, as a graph's are when it is fused. The functions may be gone: they are not to be looked at.
class InlinedCalls {
 public:
  explicit InlinedCalls(std::unordered_set<const Function*>& called) : called_(called) {}

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
  std::unordered_set<const Function*>& called_;
  std::unordered_set<const torch::jit::InlinedCallStack*> seen_;  // nodes of one call share theirs
};

void add_called(Function& function, std::unordered_set<const Function*>& called) {
  auto* graph_function = torch::jit::tryToGraphFunction(function);
  if (!graph_function) return;
  for_each_call(graph_function->graph()->block(), [&](Function& callee) {
    if (called.insert(&callee).second) add_called(callee, called);
  });
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

// Functions that a caller of the module runs: its own, and those of submodules that nothing calls. A submodule's forward
// is there for its parent, whose graph has it inlined.
template <class Visitor>
void for_each_entry(const std::vector<Place>& places, Visitor&& visit) {
  std::unordered_set<const Function*> called;
  for (const Place& place : places)
    for (Function* method : functions_of(place.module)) add_called(*method, called);
  const Place& top = places.back();
  const bool is_container = top.module.type()->methods().empty();
  const auto is_entry = [&](const Place& place, const Function* method) {
    return &place == &top || (!called.contains(method) && (is_container || method->name() != "forward"));
  };
  const auto for_each_method = [&](auto&& look) {
    for (const Place& place : places)
      for (Function* method : functions_of(place.module))
        if (auto* function = torch::jit::tryToGraphFunction(*method)) look(place, *function);
  };
  bool is_doubtful = false;
  for_each_method([&](const Place& place, GraphFunction& function) {
    is_doubtful = is_doubtful || (&place != &top && is_entry(place, &function));
  });
  if (is_doubtful) {
    InlinedCalls inlined(called);
    for_each_method([&](const Place&, GraphFunction& function) { inlined.add(function.graph()->block()); });
  }
  for_each_method([&](const Place& place, GraphFunction& function) {
    if (is_entry(place, &function)) visit(place, function);
  });
}

void append(std::vector<Site>& to, std::vector<Site> more) { to.insert(to.end(), more.begin(), more.end()); }

// Takes specimens of the fused sites only where somebody wants them: each is two graphs.
Report fuse_methods(Module& module, const Options& options, std::vector<Specimen>* specimens) {
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
  if (result.changed) set_graph(*graph_function, graph);
  return result.sites;
}

Report fuse(Module& module, const Options& options, std::vector<Specimen>& specimens) {
  return fuse_methods(module, options, &specimens);
}

Report fuse(Module& module, const Options& options) { return fuse_methods(module, options, nullptr); }

Report inspect(const Module& module, const Options& options) {
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
  for (const Place& place : places) {
    for (Function* method : functions_of(place.module)) {
      auto* function = torch::jit::tryToGraphFunction(*method);
      if (!function) continue;
      std::vector<Site> counted_above;
      unfuse_graph(function->graph(), counted_above, "");
      forget_plans(*function);
    }
  }
  return report;
}

bool needs_tailor(const Module& module) {
  for (const Place& place : one_of_every_class(module))
    for (Function* method : functions_of(place.module))
      if (auto* function = torch::jit::tryToGraphFunction(*method);
          function && has_tailor_op(function->graph()->block()))
        return true;
  return false;
}

std::vector<std::string> rules() {
  std::vector<std::string> names;
  for (const Chain* chain : all_chains()) names.emplace_back(chain->name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tailor
