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

// Takes specimens of the fused sites only where somebody wants them: each is two graphs.
Report fuse_methods(Module& module, const Options& options, std::vector<Specimen>* specimens) {
  check_rules(options);
  const Members members = members_of(module);
  const auto functions = members.functions();
  std::unordered_map<const Function*, const Member*> member_of;
  for (const Member& member : members.all) member_of.emplace(member.function, &member);
  std::unordered_map<const Function*, std::vector<Site>> sites;
  fuse_each({functions.begin(), functions.end()}, [&](Function& function, bool again) {
    const Member& member = *member_of.at(&function);
    PassOptions pass;
    pass.rules = options.rules;
    pass.method = member.name();
    std::vector<Specimen> taken;
    if (specimens) pass.specimens = &taken;
    auto result = fuse_function(function, pass);
    if (!again || result.changed || result.fits_no_file) sites[&function] = std::move(result.sites);
    for (Specimen& specimen : taken)
      for (Origin& origin : specimen.inputs)
        if (!origin.attribute.empty() && !member.path.empty()) origin.attribute = member.path + "." + origin.attribute;
    if (specimens) std::move(taken.begin(), taken.end(), std::back_inserter(*specimens));
    return result.changed;
  });
  forget_plans(functions);
  Report report;
  for (const Member& member : members.all)
    if (members.entries.contains(member.function)) append(report.sites, std::move(sites[member.function]));
  return report;
}

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

std::shared_ptr<torch::jit::Graph> with_ahead(const GraphFunction& function) {
  auto graph = copy_of(*function.graph());
  drop_ahead(graph->block());
  add_ahead(graph->block());
  return graph;
}

void unfuse_all(const std::vector<GraphFunction*>& functions) {
  const auto all = with_called(functions);
  for (GraphFunction* function : all) {
    std::vector<Site> counted_elsewhere;
    if (unfuse_graph(function->graph(), counted_elsewhere, "")) drop_unread(function->graph()->block());
  }
  forget_plans(all);
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
  if (!Leads(options.fuses ? +has_either : has_tailor_op).from(function)) return {};
  const auto graph = inlined_copy(*graph_function);
  PassResult result = run_pass(graph, options);
  // Nothing was fused there: what it calls was, and must not be where it calls it. So that is taken back in what it calls.
  if (result.changed && result.fits_no_file) {
    unfuse_all({graph_function});
  } else if (result.changed) {
    drop_unread(graph->block());
    result.changed = !is_as_before(*graph_function->graph(), *graph);
    if (result.changed) set_graph(*graph_function, graph);
  } else if (result.lacks_ahead) {  // it goes on calling: what it calls is others', too
    if (auto own = with_ahead(*graph_function); fits_no_file(*own).empty()) set_graph(*graph_function, own);
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
  Report report;
  const Members members = members_of(module);
  const auto look_at = [&](const Member& member, const std::shared_ptr<torch::jit::Graph>& graph) {
    PassOptions pass;
    pass.rules = options.rules;
    pass.method = member.name();
    return run_pass(graph, pass);
  };
  std::optional<Instead> fused;  // what fuse would make of all methods
  for (const Member& member : members.all) {
    if (!members.entries.contains(member.function)) continue;
    PassResult result = look_at(member, inlined_copy(*member.function));
    if (result.fits_no_file && !fused) {
      fused.emplace();
      for (const Member& each : members.all) {
        const auto graph = inlined_copy(*each.function);
        const PassResult made = look_at(each, graph);
        if (made.changed && !made.fits_no_file) fused->emplace(each.function, graph);
      }
    }
    // It goes on calling what is fused by itself.
    if (result.fits_no_file) result = look_at(member, inlined_copy(*member.function, *fused));
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
