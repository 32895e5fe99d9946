#include "modules.h"

#include <algorithm>
#include <unordered_map>

#include "barred.h"
#include "calls.h"
#include "entries.h"
#include "file.h"
#include "named.h"
#include "one_thread.h"
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

void unfuse_all(const std::vector<GraphFunction*>& functions) {
  for (GraphFunction* function : with_called(functions)) {
    const auto graph = function->graph();
    if (!has_tailor_op(graph->block())) continue;
    const auto own = copy_of(*graph);  // another thread may be copying the other
    std::vector<Site> counted_elsewhere;
    unfuse_graph(own, counted_elsewhere, "");
    drop_unread(own->block());
    set_graph(*function, own);
  }
  forget_plans(functions);
}

// Rewrites the function's own graph, unless that would fit no file.
PassResult rewrite_function(GraphFunction& function, const PassOptions& options) {
  // Where there is nothing to do, a copy of the whole takes longer than to find that out.
  if (!Leads(options.fuses ? has_linear_or_op : has_tailor_op).from(function)) return {};
  const auto graph = inlined_copy(function);
  PassResult result = run_pass(graph, options);
  if (!result.changed || !result.unfit.empty()) return result;
  drop_unread(graph->block());
  result.changed = !is_as_before(*function.graph(), *graph);
  if (result.changed) set_graph(function, graph);
  return result;
}

// A module's methods, fused one after the other, and what became of each.
class MethodFuser {
 public:
  // Takes specimens of the fused sites only where somebody wants them: each is two graphs.
  MethodFuser(const Members& members, const Options& options, bool takes_specimens)
      : members_(members), options_(options), takes_specimens_(takes_specimens) {
    for (const Member& member : members.all) members_of_functions_.emplace(member.function, &member);
  }

  void run() {
    const auto functions = members_.functions();
    fuse_each({functions.begin(), functions.end()},
              [&](Function& function, bool again) { return fuse_one(function, again); });
    settle_unfit();
    forget_plans(functions);
  }

  Report report(std::vector<Specimen>* specimens) {
    Report report;
    for (const Member& member : members_.all) {
      Made& made = made_[member.function];
      if (members_.entries.contains(member.function)) append(report.sites, std::move(made.sites));
      if (specimens) std::move(made.specimens.begin(), made.specimens.end(), std::back_inserter(*specimens));
    }
    return report;
  }

 private:
  struct Made {
    std::shared_ptr<Graph> before;
    std::vector<Site> sites;
    std::vector<Specimen> specimens;
    bool is_unfit = false;
  };

  bool fuse_one(Function& function, bool again) {
    const Member& member = *members_of_functions_.at(&function);
    PassOptions pass = options_of(member, options_);
    std::vector<Specimen> taken;
    if (takes_specimens_) pass.specimens = &taken;
    Made& made = made_[&function];
    if (!again) made.before = member.function->graph();
    auto result = rewrite_function(*member.function, pass);
    made.is_unfit = !result.unfit.empty();
    if (again && !result.changed) return false;
    made.sites = std::move(result.sites);
    for (Specimen& specimen : taken)
      for (Origin& origin : specimen.inputs)
        if (!origin.attribute.empty() && !member.path.empty()) origin.attribute = member.path + "." + origin.attribute;
    made.specimens = std::move(taken);
    return result.changed;
  }

  // Those that fit no file go on calling what was fused, as far as that may be.
  void settle_unfit() {
    std::vector<const Member*> unfit;
    for (const Member& member : members_.all)
      if (made_[member.function].is_unfit) unfit.push_back(&member);
    Barred barred;
    for (auto added = bar(unfit, options_, barred); !added.empty(); added = bar(unfit, options_, barred)) {
      take_back(std::move(added), barred);
      for (GraphFunction* function : members_.functions())  // those that called them fused
        if (!barred.contains(function) && !made_[function].is_unfit) fuse_one(*function, true);
    }
    for (const Member& member : members_.all) {
      Made& made = made_[member.function];
      if (!made.is_unfit && !barred.contains(member.function)) continue;
      PassResult result = look_at(member, inlined_copy(*member.function), options_, barred);
      if (result.lacks_order)
        if (auto own = with_order(*member.function)) set_graph(*member.function, std::move(own));
      made.sites = std::move(result.sites);
      made.specimens.clear();
    }
  }

  // They have their graphs of before, which may call more than those did that had calls inlined: that is barred, too.
  void take_back(std::vector<GraphFunction*> added, Barred& barred) {
    while (!added.empty()) {
      for (GraphFunction* function : added)
        if (const auto found = made_.find(function); found != made_.end()) set_graph(*function, found->second.before);
      unfuse_all(added);  // what was fused before
      const std::string reason = barred.at(added.front());
      std::vector<GraphFunction*> called;
      for (GraphFunction* function : with_called(added))
        if (barred.emplace(function, reason).second) called.push_back(function);
      added = std::move(called);
    }
  }

  const Members& members_;
  const Options& options_;
  const bool takes_specimens_;
  std::unordered_map<const Function*, const Member*> members_of_functions_;
  std::unordered_map<const Function*, Made> made_;
};

Report fuse_methods(Module& module, const Options& options, std::vector<Specimen>* specimens) {
  const OneThread one;
  check_rules(options);
  const Members members = members_of(module);
  MethodFuser fuser(members, options, specimens != nullptr);
  fuser.run();
  return fuser.report(specimens);
}

}  // namespace

void fuse_each(const std::vector<Function*>& functions, const std::function<bool(Function&, bool again)>& fuse) {
  const OneThread one;
  Functions changed;
  for (Function* function : functions)
    if (fuse(*function, false)) changed.insert(function);
  for (Function* function : ahead_of_callees(functions))
    if (!changed.contains(function)) fuse(*function, true);
}

PassResult fuse_function(Function& function, const PassOptions& options) {
  const OneThread one;
  auto* graph_function = torch::jit::tryToGraphFunction(function);
  if (!graph_function) return {};
  PassResult result = rewrite_function(*graph_function, options);
  if (result.unfit.empty()) return result;
  if (auto own = result.lacks_order ? with_order(*graph_function) : nullptr) {
    set_graph(*graph_function, std::move(own));
  } else if (result.lacks_order || result.changed) {
    unfuse_all({graph_function});
    result.sites = run_pass(inlined_copy(*graph_function), options).sites;
  }
  return result;
}

Report fuse(Module& module, const Options& options, std::vector<Specimen>& specimens) {
  return fuse_methods(module, options, &specimens);
}

Report fuse(Module& module, const Options& options) { return fuse_methods(module, options, nullptr); }

Report fuse(Function& function) {
  const OneThread one;
  auto* const graph_function = torch::jit::tryToGraphFunction(function);
  if (!graph_function) return {};
  PassOptions pass;
  pass.method = function.name();
  Report report{fuse_function(function, pass).sites};
  forget_plans({graph_function});
  return report;
}

Report inspect(Function& function) {
  const OneThread one;
  auto* graph_function = torch::jit::tryToGraphFunction(function);
  if (!graph_function) return {};
  PassOptions pass;
  pass.method = function.name();
  return {run_pass(inlined_copy(*graph_function), pass).sites};
}

Report inspect(const Module& module, const Options& options) {
  const OneThread one;
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
  const OneThread one;
  const Members members = members_of(module);
  Report report;  // as fuse counts: each entry with all that it calls
  for (const Member& member : members.all)
    if (members.entries.contains(member.function))
      unfuse_graph(inlined_copy(*member.function), report.sites, member.name());
  unfuse_all(functions_in_file_of(module));
  return report;
}

Report unfuse(Function& function) {
  const OneThread one;
  Report report;
  if (auto* graph_function = torch::jit::tryToGraphFunction(function)) {
    unfuse_graph(inlined_copy(*graph_function), report.sites, function.name());
    unfuse_all({graph_function});
  }
  return report;
}

bool needs_tailor(const Module& module) {
  const OneThread one;
  const auto all = functions_in_file_of(module);
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
