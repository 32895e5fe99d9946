#include "pass_doors.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/passes/pass_manager.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/testing/hooks_for_testing.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <sstream>

#include "passes/pass.h"
#include "tools/verify.h"

namespace tailor::fuzz {
namespace {

using torch::jit::Module;

// Plants that chains are missed.
void undo(const std::shared_ptr<torch::jit::Graph>& graph) {
  std::vector<Site> ignored;
  Spoiler::note(unfuse_graph(graph, ignored, ""));
}
void undo(Module& module) {
  Spoiler::note(needs_tailor(module));
  unfuse(module);
}

std::atomic<bool> is_automatic = true;

// Graphs come from the threads of forks too.
std::mutex watch_mutex;
Watch* watch = nullptr;

// After Tailor's own, since it is registered later.
void look_on(std::shared_ptr<torch::jit::Graph>& graph) {
  if (!is_automatic) return;
  const std::lock_guard lock(watch_mutex);
  if (!watch) return;
  if (watch->plant == "missed") undo(graph);
  watch->places.look(*graph);
}

// As scripting does: children first, and nothing has been inlined before.
void emit(const Module& module) {
  for (const Module& child : module.children()) emit(child);
  for (torch::jit::Function* method : module.type()->methods())
    if (auto* function = torch::jit::tryToGraphFunction(*method)) function->clear_optimized_graphs();
  torch::jit::getEmitHooks().first(module);
}

}  // namespace

bool automatic(bool on) {
  is_automatic = on;
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("tailor::auto", "");
  torch::jit::Stack stack{on};
  op.callBoxed(stack);
  return stack.at(0).toBool();
}

Watch::Watch(std::string plant) : plant(std::move(plant)) {
  static const auto registered = torch::jit::registerPrePass(&look_on);
  static_cast<void>(registered);
  const std::lock_guard lock(watch_mutex);
  watch = this;
}

Watch::~Watch() {
  const std::lock_guard lock(watch_mutex);
  watch = nullptr;
}

Module saved_and_loaded(const Module& module) {
  std::stringstream file;
  module.save(file);
  return torch::jit::load(file);
}

Graphs through_pass(const Graphs& plain, std::vector<Site>& sites, const std::string& plant) {
  Graphs graphs;
  for (const auto& [method, graph] : plain) {
    PassOptions options;
    options.method = method;
    graphs[method] = graph->copy();
    const PassResult result = run_pass(graphs[method], options);
    graphs[method]->lint();
    if (plant == "missed") undo(graphs[method]);
    sites.insert(sites.end(), result.sites.begin(), result.sites.end());
  }
  return graphs;
}

// Whoever makes a report, before or after, names the same sites, and all that were fused before. Of a file there may be those of
// other methods as well, or instead, on the same lines: torch drops the call of a layer whose result nobody reads, which is then a
// method that nobody calls, on lines of its own, and writes that nobody sees, so that what one method has is no longer what
// another has.
void check_same(const Report& before, const Report& after, const char* when, bool of_file = false) {
  const auto sites = [](const Report& report, bool fused) {
    std::multiset<std::string> all;
    for (const Site& site : report.sites)
      if (site.fused || !fused) all.insert(site.source + " of " + site.method + (fused ? ", " + site.rule : ""));
    return all;
  };
  const auto missing = [](const std::multiset<std::string>& from, const std::multiset<std::string>& in,
                          const char* word) {
    std::string text;
    for (const std::string& site : from)
      if (in.count(site) < from.count(site)) text += word + site;
    return text;
  };
  const auto wanted = sites(before, false), got = sites(after, false);
  std::string text = missing(sites(before, true), sites(after, true), "; not fused: ");
  const auto is_there = [&](const Site& site) {
    const std::string name = site.source + " of " + site.method;
    if (wanted.contains(name)) return got.count(name) <= wanted.count(name);
    const auto had = [&](const auto& member) {
      return std::ranges::any_of(before.sites, [&](const Site& each) { return each.*member == site.*member; });
    };
    const bool is_called_no_more = after.sites.size() <= before.sites.size() && !had(&Site::method);
    return !site.source.empty() && (had(&Site::source) || is_called_no_more);
  };
  if (!of_file || !std::ranges::all_of(after.sites, is_there))
    text += missing(wanted, got, "; not: ") + missing(got, wanted, "; now: ");
  if (!text.empty()) throw std::runtime_error(std::string("another report ") + when + text);
}

// As the command does, which writes nothing where a site by itself computes something else.
Report fuse_and_verify(Module& module) {
  const Module original = saved_and_loaded(module);  // a copy would share the graphs that are rewritten
  std::vector<Specimen> specimens;
  const Report report = fuse(module, Options(), specimens);
  const tool::Verdict verdict = tool::verify(original, module, specimens, {});
  if (!verdict.ok) throw std::runtime_error("the command would write nothing: " + verdict.message);
  return report;
}

Module changed(Door door, Module module, const Model& model, Places* places) {
  const Report before = inspect(module);
  check_same(before, is_by_file(door) ? fuse_and_verify(module) : fuse(module), "by fuse");
  check_same(before, inspect(module), "once it is fused");
  if (model.planted_at(door) == "missed") undo(module);
  if (is_by_file(door)) {
    module = saved_and_loaded(module);
    check_same(before, inspect(module), "of what came from a file", true);
  }
  if (places) places->look(graphs_of(module, model));
  if (door == Door::unfuse || door == Door::back) {
    unfuse(module);
    TORCH_CHECK(!needs_tailor(module), "unfuse has left an op of Tailor's behind");
  }
  if (is_by_file(door)) saved_and_loaded(module);  // what came from a file goes into one
  return module;
}

Side through(Door door, const Compiled& compiled, const Model& model, Graphs& graphs, Places* places) {
  Module module = compiled.instance();
  if (door == Door::pass) {
    std::vector<Site> ignored;
    graphs = through_pass(graphs_of(module, model), ignored, model.planted_at(door));
  } else if (door == Door::hook) {
    emit(module);
    if (model.planted_at(door) == "missed") undo(module);
    graphs = graphs_of(module, model);
  } else if (door != Door::executor) {
    module = changed(door, module, model, places);
    graphs = graphs_of(module, model);
    places = nullptr;
  }
  if (places) places->look(graphs);
  add_ahead_where_left_alone(graphs);
  const bool by_executor = door == Door::fuse || door == Door::executor;
  Side side(module, by_executor ? nullptr : &graphs, model.type);
  side.spoil(model.planted_at(door));
  return side;
}

}  // namespace tailor::fuzz
