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

PassResult look_at(const Member& member, const std::shared_ptr<Graph>& graph, const Options& options) {
  return run_pass(graph, options_of(member, options));
}

// The graphs that fuse gives the methods, but for what it takes back for one that fits no file.
Instead made_by_fuse(const Members& members, const Options& options) {
  Instead made;
  std::vector<const Member*> unfit;
  for (const Member& member : members.all) {
    const auto graph = inlined_copy(*member.function);
    const PassResult result = look_at(member, graph, options);
    if (result.fits_no_file)
      unfit.push_back(&member);
    else if (result.changed)
      made.emplace(member.function, graph);
  }
  for (const Member* member : unfit) {
    const PassResult calling = look_at(*member, inlined_copy(*member->function, made), options);
    if (calling.changed || (calling.lacks_ahead && !with_ahead(*member->function, made)))
      for (GraphFunction* function : with_called({member->function})) made.erase(function);
  }
  return made;
}

// Takes specimens of the fused sites only where somebody wants them: each is two graphs.
Report fuse_methods(Module& module, const Options& options, std::vector<Specimen>* specimens) {
  check_rules(options);
  const Members members = members_of(module);
  const auto functions = members.functions();
  std::unordered_map<const Function*, const Member*> member_of;
  for (const Member& member : members.all) member_of.emplace(member.function, &member);
  std::unordered_map<const Function*, std::vector<Site>> sites;
  std::vector<const Member*> unfit;
  fuse_each({functions.begin(), functions.end()}, [&](Function& function, bool again) {
    const Member& member = *member_of.at(&function);
    PassOptions pass = options_of(member, options);
    std::vector<Specimen> taken;
    if (specimens) pass.specimens = &taken;
    auto result = fuse_function(function, pass);
    if (!again || result.changed) sites[&function] = std::move(result.sites);
    if (result.fits_no_file) unfit.push_back(&member);
    for (Specimen& specimen : taken)
      for (Origin& origin : specimen.inputs)
        if (!origin.attribute.empty() && !member.path.empty()) origin.attribute = member.path + "." + origin.attribute;
    if (specimens) std::move(taken.begin(), taken.end(), std::back_inserter(*specimens));
    return result.changed;
  });
  // They go on calling, and what they call may have been fused after them, or taken back for another's sake.
  for (const Member* member : unfit)
    sites[member->function] = look_at(*member, inlined_copy(*member->function), options).sites;
  run_ahead_behind_interfaces(module);
  forget_plans(functions);
  Report report;
  for (const Member& member : members.all)
    if (members.entries.contains(member.function)) append(report.sites, std::move(sites[member.function]));
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
  // Where there is nothing to do, a copy of the whole takes longer than to find that out.
  const auto has_either = [](const torch::jit::Block* block) { return has_linear(block) || has_tailor_op(block); };
  if (!options.joins_op && !Leads(options.fuses ? +has_either : has_tailor_op).from(function)) return {};
  const auto graph = inlined_copy(*graph_function);
  PassResult result = run_pass(graph, options);
  const auto own = result.lacks_ahead ? with_ahead(*graph_function) : nullptr;
  if (own) {
    set_graph(*graph_function, own);
  } else if (result.lacks_ahead || (result.changed && result.fits_no_file)) {
    // Nothing was fused there: what it calls was, and must not be where it calls it. So that is taken back in what it calls.
    unfuse_all({graph_function});
    if (result.lacks_ahead) result.sites = run_pass(inlined_copy(*graph_function), options).sites;
  } else if (result.changed) {
    drop_unread(graph->block());
    result.changed = !is_as_before(*graph_function->graph(), *graph);
    if (result.changed) set_graph(*graph_function, graph);
  }
  return result;
}

void run_ahead_behind_interfaces(const Module& module) {
  const auto behind = behind_interfaces(module);
  if (behind.empty() || !needs_tailor(module)) return;
  PassOptions pass;
  pass.fuses = false;
  pass.joins_op = true;
  for (GraphFunction* function : behind)
    if (fuse_function(*function, pass).changed) forget_plans({function});  // freezing reads them
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
  Report report;
  const Members members = members_of(module);
  std::optional<Instead> made;
  for (const Member& member : members.all) {
    if (!members.entries.contains(member.function)) continue;
    PassResult result = look_at(member, inlined_copy(*member.function), options);
    if (result.fits_no_file) {  // it goes on calling what is fused by itself
      if (!made) made = made_by_fuse(members, options);
      result = look_at(member, inlined_copy(*member.function, *made), options);
    }
    append(report.sites, std::move(result.sites));
  }
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
  const auto all = with_called(functions_within(module));
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
