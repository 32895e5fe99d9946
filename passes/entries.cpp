#include "entries.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "calls.h"
#include "forks.h"
#include "inlined_size.h"
#include "lines.h"
#include "match.h"
#include "objects.h"
#include "pass.h"
#include "unwritten.h"

namespace tailor {
namespace {

using torch::jit::Function;
using torch::jit::GraphFunction;
using torch::jit::Module;

// What a linear may be called after its graph was saved: that takes away how it came there, but neither whose attribute the
// weight is nor, where he has one, its author's line. One name for the module that holds the weight, one for the module that
// holds that, and so on; the last is the longest, and what the linear is called in its own graph.
std::vector<std::string> names_of(const Node* node, Value* weight) {
  const std::string line = has_users_line(node) ? source_line(node) : "";
  std::vector<std::string> names;
  if (!line.empty()) names.push_back(line);
  while (weight->node()->kind() != c10::prim::GetAttr && !weight->node()->inputs().empty()) {
    Value* const held = before_held(weight);
    weight = held ? held : weight->node()->input(0);  // a transpose, or another of our guards
  }
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
  if (const auto other = other_linear_at(node)) return other->weight;
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

// A function's graph once it is fused, whether or not it is.
std::shared_ptr<Graph> fused(const GraphFunction& function) {
  PassOptions options;
  options.reasons = false;
  auto graph = inlined_copy(function);
  run_pass(graph, options);
  return graph;
}

// The linears of functions, as they are once those are fused. The file of a module that was fused has its submodules' graphs twice,
// inlined and by themselves, and says nowhere that they are the same. Two methods may have one linear, from a third, and be fused
// otherwise.
class Linears {
 public:
  void add(Graph& fused) {
    for_each_linear(fused.block(), [&](const auto& names, std::string_view rule) {
      for (const std::string& name : names) {
        names_.insert(name);
        if (!rule.empty()) names_.insert(in_chain(name, rule));
      }
    });
  }
  bool include(Graph& fused) const {
    bool all = true;
    for_each_linear(fused.block(), [&](const auto& names, std::string_view rule) {
      all = all && !names.empty() && names_.contains(rule.empty() ? names.back() : in_chain(names.back(), rule));
    });
    return all;
  }

 private:
  static std::string in_chain(const std::string& name, std::string_view rule) { return std::string(rule) + " " + name; }

  std::unordered_set<std::string> names_;
};

// torch.nn's Linear, which no method calls, is a linear with nothing after it: its weight is read elsewhere, or not at all.
bool is_bare_linear(const Function& method) {
  return method.qualname().qualifiedName().starts_with("__torch__.torch.nn.modules.linear.");
}

// One object of every class, modules and others, those in it first.
class Collection {
 public:
  explicit Collection(const Module& module) { add(*module._ivalue(), ""); }

  std::vector<Member> members;
  // The methods of modules that their owner knows by an interface only: those are all that he can use of them.
  Functions through_interfaces;

 private:
  // Objects of one class may have different ones behind an interface: all are looked into, and each class is taken once.
  void add(const c10::ivalue::Object& object, const std::string& path) {
    if (!seen_objects_.insert(&object).second) return;
    const bool is_first = seen_types_.insert(object.type().get()).second;
    for_each_held(object, [&](const Held& held) {
      if (!held.value.isObject()) return;
      add(held.value.toObjectRef(), beneath(path, held.place));
      if (held.has_own_class) return;
      const auto methods = functions_of(*held.value.toObjectRef().type());
      through_interfaces.insert(methods.begin(), methods.end());
    });
    if (!is_first) return;
    for (Function* function : functions_of(*object.type()))
      if (auto* graph_function = torch::jit::tryToGraphFunction(*function)) members.push_back({path, graph_function});
  }

  std::unordered_set<const c10::ivalue::Object*> seen_objects_;
  std::unordered_set<const c10::Type*> seen_types_;
};

bool is_member(const GraphFunction& function, const std::vector<Member>& members) {
  return std::any_of(members.begin(), members.end(),
                     [&](const Member& member) { return member.function == &function; });
}

std::size_t nodes_in(Graph& graph) {
  std::size_t count = 0;
  for_each_block(graph.block(), [&](const Block* block) {
    count += static_cast<std::size_t>(std::distance(block->nodes().begin(), block->nodes().end()));
  });
  return count;
}

// Of the functions that nobody is seen to call, those whose linears none before them has.
void add_doubtful(std::vector<GraphFunction*> doubtful, Functions called, Members& members) {
  Linears seen;
  for (const Member& member : members.all) {
    add_inlined(*member.function, called);
    if (members.entries.contains(member.function)) seen.add(*fused(*member.function));
  }
  std::erase_if(doubtful, [&](GraphFunction* function) { return called.contains(function); });
  std::unordered_map<const GraphFunction*, std::shared_ptr<Graph>> graphs;
  for (const GraphFunction* function : doubtful) graphs[function] = fused(*function);
  // Where one had called another, before a file forgot it, it has the other's code and more.
  std::stable_sort(doubtful.begin(), doubtful.end(), [&](const auto* one, const auto* other) {
    return nodes_in(*graphs[one]) > nodes_in(*graphs[other]);
  });
  for (GraphFunction* function : doubtful) {
    if (seen.include(*graphs[function])) continue;
    seen.add(*graphs[function]);
    members.entries.insert(function);
  }
}

}  // namespace

std::vector<Function*> functions_of(const c10::ClassType& type) {
  std::vector<Function*> all = type.methods();
  for (const auto* hooks : {&type.getForwardPreHooks(), &type.getForwardHooks()})
    all.insert(all.end(), hooks->begin(), hooks->end());
  return all;
}

std::string Member::name() const { return beneath(path, function->name()); }

std::vector<GraphFunction*> Members::functions() const {
  std::vector<GraphFunction*> result;
  for (const Member& member : all) result.push_back(member.function);
  return result;
}

Members members_of(const Module& module) {
  Collection collection(module);
  Members members{std::move(collection.members), {}};
  const bool is_container = module.type()->methods().empty();

  Functions reached;
  for (const Member& member : members.all) reached.insert(member.function);
  Functions called = called_by(reached);
  reached.insert(called.begin(), called.end());
  require_small(reached);
  for (GraphFunction* kept : kept_calls(reached)) {
    called.erase(kept);  // nobody has its code, as those do that call the others
    if (!is_member(*kept, members.all)) members.all.insert(members.all.begin(), {"", kept});
  }

  const auto own = functions_of(*module.type());
  members.entries.insert(own.begin(), own.end());
  std::vector<GraphFunction*> doubtful;
  for (const Member& member : members.all) {
    GraphFunction* function = member.function;
    if (members.entries.contains(function) || called.contains(function)) continue;
    if (is_container || collection.through_interfaces.contains(function) || !is_bare_linear(*function))
      doubtful.push_back(function);
  }
  if (!doubtful.empty()) add_doubtful(std::move(doubtful), std::move(called), members);
  return members;
}

}  // namespace tailor
