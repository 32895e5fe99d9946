#include "pass_ledger.h"

#include <torch/csrc/jit/passes/common_subexpression_elimination.h>
#include <torch/csrc/jit/passes/loop_unrolling.h>
#include <torch/csrc/jit/passes/peephole.h>

#include <algorithm>

#include "passes/forks.h"
#include "passes/graph.h"
#include "passes/lines.h"
#include "passes/pass.h"

namespace tailor::fuzz {
namespace {

bool has_line(torch::jit::Graph& graph, const std::vector<std::string>& lines) {
  bool found = false;
  for_each_block(graph.block(), [&](torch::jit::Block* block) {
    for (torch::jit::Node* node : block->nodes()) {
      found = found || std::ranges::find(lines, source_line(node)) != lines.end();
      if (const auto forked = forked_graph(node)) found = found || has_line(*forked, lines);
    }
  });
  return found;
}

void make_one_of_equals(std::shared_ptr<torch::jit::Graph> graph, bool unrolled) {
  if (unrolled) torch::jit::UnrollLoops(graph);
  torch::jit::PeepholeOptimize(graph, true);  // an attribute that is None becomes None
  torch::jit::EliminateCommonSubexpression(graph);
  for_each_block(graph->block(), [&](torch::jit::Block* block) {
    for (torch::jit::Node* node : block->nodes())
      if (const auto forked = forked_graph(node)) make_one_of_equals(forked, unrolled);
  });
}

}  // namespace

// Whether a graph that is called has something of one of these lines.
bool Ledger::is_run(const std::vector<std::string>& lines) const {
  return std::ranges::any_of(plain_, [&](const auto& graph) { return has_line(*graph.second, lines); });
}

std::string Ledger::note(const std::vector<Site>& sites, const Places& made, bool wrong) {
  std::string first_missed;
  for (const auto& [number, lines] : compiled_.sites()) {
    const Chain& chain = model_.chains[static_cast<std::size_t>(number)];
    bool found = false, fused = true;
    std::string reason;
    for (const Site& site : sites) {
      if (std::ranges::find(lines, site.source) == lines.end()) continue;
      found = true;
      if (site.fused && site.rule == chain.rule) continue;
      fused = false;
      reason = site.fused ? "it was fused as " + site.rule : site.reason;
    }
    if (!found && !is_run(lines)) continue;  // in a method or a block that nobody calls
    if (!found) reason = "it is no site of the report";
    const bool is_reported = fused && found;
    fused = is_reported && made.are_fused(lines, chain.rule);
    if (is_reported && !fused) reason = "it is fused by the report, and no op is in the graph";
    const bool missed = !fused && (chain.fate == Fate::fuses || is_reported);
    if (fused && chain.fate != Fate::fuses && model_.plant == "misplaced" && model_.plant_door != Door::executor)
      fused = !Spoiler::note(model_.plant_door != Door::pass);
    (fused ? fused_by_pass_ : left_by_pass_).insert(number);
    const auto note = [&](Count& count) {
      ++count.planted;
      ++(fused ? count.fused : count.refused);
      count.wrong += wrong && fused;
      count.missed += missed;
    };
    note(tally_.by_rule[chain.rule]);
    if (chain.disturbed.empty()) note(tally_.by_disturbance["nothing"]);
    for (const auto& what : chain.disturbed) note(tally_.by_disturbance[what]);
    if (!fused) note(tally_.by_reason[plain_words(reason)]);
    if (missed && first_missed.empty()) first_missed = chain.rule + " in " + lines.front() + ": " + reason;
  }
  return first_missed;
}

std::string Ledger::note_at(Door door, const Places& made, bool wrong) {
  std::string first;
  for (const auto& [number, lines] : compiled_.sites()) {
    const Chain& chain = model_.chains[static_cast<std::size_t>(number)];
    const bool by_pass = fused_by_pass_.contains(number);
    if (!by_pass && !left_by_pass_.contains(number)) continue;
    // The executor knows what seen_by says, and from a file torch drops what nobody reads.
    const bool may_be_gone = door == Door::executor || is_by_file(door);
    if (!made.know(lines) && (may_be_gone || !by_pass)) continue;
    const bool fused = door == Door::executor ? made.have_op(lines, chain.rule) : made.are_fused(lines, chain.rule);
    // In the executor's graph, which torch has simplified, the pass may see more against a chain of which nothing is promised.
    const bool missed = !fused && (chain.fate == Fate::fuses || (by_pass && door != Door::executor));
    const bool misplaced = fused && !by_pass && door != Door::executor;
    Count& count = tally_.by_door[std::string(to_string(door)) + ", " + chain.rule];
    ++count.planted;
    ++(fused ? count.fused : count.refused);
    count.wrong += (wrong && fused) || misplaced;
    count.missed += missed;
    if (first.empty() && (missed || misplaced))
      first = chain.rule + " in " + lines.front() + (missed ? "" : ", which the pass leaves alone");
  }
  return first;
}

// What the pass fuses where torch has made one of equal nodes, two chains' products among them, and of an unrolled loop's, which its
// executor does first.
Places Ledger::left_by_torch(bool unrolled) const {
  Places places;
  for (const auto& [method, graph] : plain_) {
    const auto copy = graph->copy();
    make_one_of_equals(copy, unrolled);
    run_pass(copy, PassOptions());
    places.look(*copy);
  }
  return places;
}

Places Ledger::seen_by(const Watch& watch, const Side& side) {
  Places made, plain, called;
  if (compiled_.switches_gradients()) return made;
  plain.look(plain_);
  // Optimised is what has come to its end before; what is forked counts for itself, and anew in each plan.
  for (const auto& [method, graph] : plain_) {
    Places own;
    own.look(*graph, Places::Forks::not_in);
    const bool is_seen = std::ranges::any_of(own.left, [&](const auto& line) { return watch.places.know({line}); });
    if (side.finished(method) >= 2 && !is_seen) called.look(*graph, Places::Forks::not_in);
  }
  std::vector<Places> merged;
  for (const auto& site : compiled_.sites()) {
    const auto& lines = site.second;
    const std::string& rule = model_.chains[static_cast<std::size_t>(site.first)].rule;
    if (!watch.places.have_op(lines, rule)) {
      if (merged.empty()) merged = {left_by_torch(false), left_by_torch(true)};
      const auto have_it = [&](const Places& places) { return places.have_op(lines, rule); };
      if (!std::ranges::all_of(merged, have_it)) continue;
    }
    if (std::ranges::any_of(lines, [&](const std::string& line) { return plain.addmm.contains(line); })) continue;
    made.take(lines, watch.places.know(lines) ? watch.places : called);
  }
  return made;
}

}  // namespace tailor::fuzz
