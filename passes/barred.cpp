#include "barred.h"

#include "order.h"

namespace tailor {

using torch::jit::GraphFunction;

std::shared_ptr<Graph> with_order(const GraphFunction& function, Instead instead) {
  auto own = copy_of(*function.graph());
  drop_order(own->block());
  keep_order(own->block());
  instead[&function] = own;
  return may_lose_order(inlined_copy(function, instead)->block()) ? nullptr : own;
}

PassOptions options_of(const Member& member, const Options& options) {
  PassOptions pass;
  pass.rules = options.rules;
  pass.method = member.name();
  return pass;
}

PassResult look_at(const Member& member, const std::shared_ptr<Graph>& graph, const Options& options,
                   const Barred& barred) {
  PassOptions pass = options_of(member, options);
  if (const auto found = barred.find(member.function); found != barred.end()) pass.leave = found->second;
  return run_pass(graph, pass);
}

std::vector<GraphFunction*> bar(const std::vector<const Member*>& unfit, const Options& options, Barred& barred,
                                const Instead& fused) {
  std::vector<GraphFunction*> added;
  for (const Member* member : unfit) {
    if (barred.contains(member->function)) continue;
    const PassResult result = look_at(*member, inlined_copy(*member->function, fused), options);
    const bool may_call = result.lacks_order ? with_order(*member->function, fused) != nullptr : !result.changed;
    if (may_call) continue;
    const std::string reason =
        "`" + spoken_name(*member->function) + "` calls it, and cannot be fused: " + result.unfit;
    for (GraphFunction* callee : with_called({member->function}))
      if (barred.emplace(callee, reason).second) added.push_back(callee);
  }
  return added;
}

namespace {

std::shared_ptr<Graph> unfused_copy(const GraphFunction& function) {
  auto graph = copy_of(*function.graph());
  std::vector<Site> counted_elsewhere;
  unfuse_graph(graph, counted_elsewhere, "");
  return graph;
}

}  // namespace

Foreseen foresee(const Members& members, const Options& options) {
  Foreseen foreseen;
  auto& [fused, barred] = foreseen;
  std::vector<const Member*> unfit;
  for (const Member& member : members.all) {
    const auto graph = inlined_copy(*member.function);
    const PassResult result = look_at(member, graph, options);
    if (!result.unfit.empty())
      unfit.push_back(&member);
    else if (result.changed)
      fused.emplace(member.function, graph);
  }
  for (auto added = bar(unfit, options, barred, fused); !added.empty(); added = bar(unfit, options, barred, fused))
    for (GraphFunction* function : added) fused[function] = unfused_copy(*function);
  return foreseen;
}

}  // namespace tailor
