#include "modules.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "ahead.h"
#include "calls.h"
#include "entries.h"
#include "file.h"
#include "plans.h"

namespace tailor {
namespace {

using torch::jit::Function;
using torch::jit::GraphFunction;
using torch::jit::Module;

void check_rules(const Options& options) {
  for (const std::string& name : options.rules) {
    if (find_chain(name)) continue;
    std::string all;
    for (const std::string& known : rules()) all += (all.empty() ? "" : ", ") + known;
    TORCH_CHECK_VALUE(false, "Tailor has no rule '", name, "'. It has ", all, ".");
  }
}

void append(std::vector<Site>& to, std::vector<Site> more) { to.insert(to.end(), more.begin(), more.end()); }

// Values numbered as they come.
std::string without_names(Graph& graph) {
  const auto copy = graph.copy();
  for_each_block(copy->block(), [](Block* block) {
    for (Value* input : block->inputs()) input->setDebugName("");
    for (Node* node : block->nodes())
      for (Value* output : node->outputs()) output->setDebugName("");
  });
  return copy->toString(false);
}

// What was unfused because of where it is called is the same each time, but for names.
bool is_as_before(Graph& before, Graph& after) {
  return has_tailor_op(before.block()) && without_names(before) == without_names(after);
}

// The function's graph, which goes on calling, with what runs its loops ahead. Null where that is not enough: what it calls is
// others', too, and a loop there stays as it is.
std::shared_ptr<Graph> with_ahead(const GraphFunction& function, Instead instead = {}) {
  auto own = copy_of(*function.graph());
  drop_ahead(own->block());
  add_ahead(own->block());
  instead[&function] = own;
  return has_bare_loop(inlined_copy(function, instead)->block()) ? nullptr : own;
}

// Of a function that fits no file, and so goes on calling: whether what it calls must not be fused where it calls it.
bool bars_callees(const GraphFunction& function, const PassResult& result, const Instead& instead = {}) {
  return result.changed || (result.lacks_ahead && !with_ahead(function, instead));
}

void unfuse_all(const std::vector<GraphFunction*>& functions) {
  const auto all = with_called(functions);
  for (GraphFunction* function : all) {
    std::vector<Site> counted_elsewhere;
    if (unfuse_graph(function->graph(), counted_elsewhere, "")) drop_unread(function->graph()->block());
  }
  forget_plans(all);
}

PassOptions options_of(const Member& member, const Options& options) {
  PassOptions pass;
  pass.rules = options.rules;
  pass.method = member.name();
  return pass;
}

// Functions of which nothing is fused for the sake of one that calls them, and why.
using Barred = std::unordered_map<GraphFunction*, std::string>;

PassResult look_at(const Member& member, const std::shared_ptr<Graph>& graph, const Options& options,
                   const Barred& barred = {}) {
  PassOptions pass = options_of(member, options);
  if (const auto found = barred.find(member.function); found != barred.end()) pass.leave = found->second;
  return run_pass(graph, pass);
}

// Bars what methods that fit no file must not call fused, and returns what is new: taken back, it may bring bare loops before another such
// method, which is to be asked again. `fused`: the graphs of what they call, where those are not the functions' own.
std::vector<GraphFunction*> bar(const std::vector<const Member*>& unfit, const Options& options, Barred& barred,
                                const Instead& fused = {}) {
  std::vector<GraphFunction*> added;
  for (const Member* member : unfit) {
    if (barred.contains(member->function)) continue;
    const PassResult result = look_at(*member, inlined_copy(*member->function, fused), options);
    if (!bars_callees(*member->function, result, fused)) continue;
    const std::string reason =
        "`" + spoken_name(*member->function) + "` calls it, and cannot be fused: " + result.unfit;
    for (GraphFunction* callee : with_called({member->function}))
      if (barred.emplace(callee, reason).second) added.push_back(callee);
  }
  return added;
}

// What fuse makes of methods that call what is fused by itself.
struct Foreseen {
  Instead fused;
  Barred barred;
};

Foreseen foresee(const Members& members, const Options& options) {
  Foreseen foreseen;
  std::vector<const Member*> unfit;
  for (const Member& member : members.all) {
    const auto graph = inlined_copy(*member.function);
    const PassResult result = look_at(member, graph, options);
    if (!result.unfit.empty())
      unfit.push_back(&member);
    else if (result.changed)
      foreseen.fused.emplace(member.function, graph);
  }
  auto& [fused, barred] = foreseen;
  for (auto added = bar(unfit, options, barred, fused); !added.empty(); added = bar(unfit, options, barred, fused))
    for (GraphFunction* function : added) fused.erase(function);
  return foreseen;
}

// Rewrites the function's own graph, unless that would fit no file.
PassResult rewrite_function(GraphFunction& function, const PassOptions& options) {
  // Where there is nothing to do, a copy of the whole takes longer than to find that out.
  const auto has_either = [](const torch::jit::Block* block) { return has_linear(block) || has_tailor_op(block); };
  if (!Leads(options.fuses ? +has_either : has_tailor_op).from(function)) return {};
  const auto graph = inlined_copy(function);
  PassResult result = run_pass(graph, options);
  if (!result.changed || !result.unfit.empty()) return result;
  drop_unread(graph->block());
  result.changed = !is_as_before(*function.graph(), *graph);
  if (result.changed) set_graph(function, graph);
  return result;
}

// Takes specimens of the fused sites only where somebody wants them: each is two graphs.
Report fuse_methods(Module& module, const Options& options, std::vector<Specimen>* specimens) {
  check_rules(options);
  const Members members = members_of(module);
  const auto functions = members.functions();
  std::unordered_map<const Function*, const Member*> member_of;
  for (const Member& member : members.all) member_of.emplace(member.function, &member);
  struct Made {
    std::vector<Site> sites;
    std::vector<Specimen> specimens;
    bool is_unfit = false;
    std::shared_ptr<Graph> before;
  };
  std::unordered_map<const Function*, Made> made;
  const auto fuse_one = [&](Function& function, bool again) {
    const Member& member = *member_of.at(&function);
    PassOptions pass = options_of(member, options);
    std::vector<Specimen> taken;
    if (specimens) pass.specimens = &taken;
    Made& mine = made[&function];
    if (!again) mine.before = member.function->graph();
    auto result = rewrite_function(*member.function, pass);
    mine.is_unfit = !result.unfit.empty();
    if (again && !result.changed) return false;
    mine.sites = std::move(result.sites);
    for (Specimen& specimen : taken)
      for (Origin& origin : specimen.inputs)
        if (!origin.attribute.empty() && !member.path.empty()) origin.attribute = member.path + "." + origin.attribute;
    mine.specimens = std::move(taken);
    return result.changed;
  };
  fuse_each({functions.begin(), functions.end()}, fuse_one);

  std::vector<const Member*> unfit;
  for (const Member& member : members.all)
    if (made[member.function].is_unfit) unfit.push_back(&member);
  Barred barred;
  for (auto added = bar(unfit, options, barred); !added.empty(); added = bar(unfit, options, barred)) {
    while (!added.empty()) {
      for (GraphFunction* function : added)
        if (const auto found = made.find(function); found != made.end()) set_graph(*function, found->second.before);
      unfuse_all(added);                   // what was fused before
      std::vector<GraphFunction*> called;  // by graphs that had it inlined until now
      for (GraphFunction* function : with_called(added))
        if (barred.emplace(function, barred.at(added.front())).second) called.push_back(function);
      added = std::move(called);
    }
    for (GraphFunction* function : functions)  // those that called them fused
      if (!barred.contains(function) && !made[function].is_unfit) fuse_one(*function, true);
  }
  for (const Member& member : members.all) {
    Made& mine = made[member.function];
    if (!mine.is_unfit && !barred.contains(member.function)) continue;
    PassResult result = look_at(member, inlined_copy(*member.function), options, barred);
    if (result.lacks_ahead) set_graph(*member.function, with_ahead(*member.function));  // and is not barred
    mine.sites = std::move(result.sites);
    mine.specimens.clear();
  }
  forget_plans(functions);

  Report report;
  for (const Member& member : members.all) {
    Made& mine = made[member.function];
    if (members.entries.contains(member.function)) append(report.sites, std::move(mine.sites));
    if (specimens) std::move(mine.specimens.begin(), mine.specimens.end(), std::back_inserter(*specimens));
  }
  return report;
}

}  // namespace

void fuse_each(const std::vector<Function*>& functions, const std::function<bool(Function&, bool again)>& fuse) {
  Functions changed;
  for (Function* function : functions)
    if (fuse(*function, false)) changed.insert(function);
  for (Function* function : ahead_of_callees(functions))
    if (!changed.contains(function)) fuse(*function, true);
}

PassResult fuse_function(Function& function, const PassOptions& options) {
  auto* graph_function = torch::jit::tryToGraphFunction(function);
  if (!graph_function) return {};
  PassResult result = rewrite_function(*graph_function, options);
  if (result.unfit.empty()) return result;
  if (bars_callees(*graph_function, result)) {
    unfuse_all({graph_function});
    result.sites = run_pass(inlined_copy(*graph_function), options).sites;
  } else if (result.lacks_ahead) {
    set_graph(*graph_function, with_ahead(*graph_function));
  }
  return result;
}

Report fuse(Module& module, const Options& options, std::vector<Specimen>& specimens) {
  return fuse_methods(module, options, &specimens);
}

Report fuse(Module& module, const Options& options) { return fuse_methods(module, options, nullptr); }

Report fuse(Function& function) {
  PassOptions pass;
  pass.method = function.name();
  Report report{fuse_function(function, pass).sites};
  if (auto* graph_function = torch::jit::tryToGraphFunction(function)) forget_plans({graph_function});
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
  const Members members = members_of(module);
  std::vector<std::pair<const Member*, PassResult>> results;
  bool all_fit = true;
  for (const Member& member : members.all) {
    if (!members.entries.contains(member.function)) continue;
    results.emplace_back(&member, look_at(member, inlined_copy(*member.function), options));
    all_fit = all_fit && results.back().second.unfit.empty();
  }
  if (!all_fit) {
    const auto [fused, barred] = foresee(members, options);
    for (auto& [member, result] : results)
      if (!result.unfit.empty() || barred.contains(member->function))
        result = look_at(*member, inlined_copy(*member->function, fused), options, barred);
  }
  Report report;
  for (auto& [member, result] : results) append(report.sites, std::move(result.sites));
  return report;
}

Report unfuse(Module& module) {
  const Members members = members_of(module);
  Report report;  // as fuse counts: each entry with all that it calls
  for (const Member& member : members.all)
    if (members.entries.contains(member.function))
      unfuse_graph(inlined_copy(*member.function), report.sites, member.name());
  unfuse_all(members.functions());
  return report;
}

Report unfuse(Function& function) {
  Report report;
  if (auto* graph_function = torch::jit::tryToGraphFunction(function)) {
    unfuse_graph(inlined_copy(*graph_function), report.sites, function.name());
    unfuse_all({graph_function});
  }
  return report;
}

bool needs_tailor(const Module& module) {
  const auto all = with_called(members_of(module).functions());
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
