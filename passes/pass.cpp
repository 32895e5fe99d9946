#include "pass.h"

#include <algorithm>
#include <unordered_map>

#include "calls.h"
#include "effects.h"
#include "file.h"
#include "forks.h"
#include "in_place.h"
#include "lines.h"
#include "match.h"
#include "normalise.h"
#include "order.h"
#include "prove.h"
#include "rewrite.h"
#include "twins.h"
#include "wide_tuples.h"

namespace tailor {
namespace {

// What a site became; `proven` only where there is something to rewrite.
struct Finding {
  Site site;
  std::optional<Proven> proven = std::nullopt;
  const Node* linear = nullptr;  // of a site that was left alone
};

// Methods were fused by themselves, and here they are called: inside `with autocast` an op must be what torch can cast, and where some
// have gradients and others none, torch must not make one of equal ops, which the pass can tell only from what was written.
bool unfuse_what_was_called(const std::shared_ptr<Graph>& graph, bool is_executors, bool has_leaver) {
  if (!has_tailor_op(graph->block())) return false;
  bool autocasts = false;
  bool runs_an_op = false;  // itself; what it forks is another graph
  for_each_block(graph->block(), [&](Block* block) {
    for (const Node* node : block->nodes()) {
      autocasts = autocasts || enters_autocast(node);
      runs_an_op = runs_an_op || fused_chain(node);
    }
  });
  std::vector<Site> ignored;
  const bool may_be_lost = runs_an_op && has_leaver;
  const bool may_be_one = !is_executors && (Twins(*graph).has_equal_ops() || may_be_lost);
  return (autocasts || may_be_one) && unfuse_graph(graph, ignored, "");
}

// torch's executor judges of what it differentiates together by who reads it first, and would ask an op that may stand where nobody
// wants a gradient.
std::string beside(const Leaver& leaver) {
  const std::string callee = leaver.callee ? ", as `" + spoken_name(*leaver.callee) + "` does" : "";
  return describe(leaver.node) + (leaver.node->kind().is_aten() ? " leaves" : " may leave") + " another mode behind" +
         callee + ", and beside an op torch might lose gradients; `with torch.no_grad():` leaves none";
}

constexpr const char* taken = "what follows belongs to the chain of another linear";

class Search {
 public:
  Search(const std::shared_ptr<Graph>& graph, const PassOptions& options, const std::string& of_all)
      : surroundings_(graph), twins_(*graph), options_(options), of_all_(of_all) {
    look(graph->block());
  }

  std::vector<Finding>& findings() { return findings_; }

 private:
  void look(Block* block) {
    for (Node* node : block->nodes()) {
      if (const Chain* chain = fused_chain(node)) {
        findings_.push_back({{std::string(chain->name), options_.method, source_line(node), true, ""}});
      } else if (!claimed_.contains(node)) {
        if (const auto linears = linears_at(node); !linears.empty())
          findings_.push_back(examine(node, linears));
        else if (const auto other = other_linear_at(node))
          findings_.push_back({{"", options_.method, source_line(node), false, other->reason}, {}, node});
      }
      if (is_guarded(node))
        look(node->blocks()[0]);
      else
        for (Block* inner : node->blocks()) look(inner);
    }
  }

  bool is_wanted(const Chain& chain) const {
    const auto& rules = options_.rules;
    return rules.empty() || std::find(rules.begin(), rules.end(), chain.name) != rules.end();
  }

  // Tries every rule, the longest first, and keeps the first that proves or the one that came nearest.
  Finding examine(Node* node, const std::vector<Linear>& linears) {
    Finding best{{"", options_.method, source_line(node), false, ""}, {}, node};
    constexpr int proven_nearness = 1000;  // only the proof failed
    int nearest = 0;
    const auto note = [&](const Chain& chain, int nearness, const std::string& reason) {
      if (nearness <= nearest) return;
      nearest = nearness;
      best.site.rule = chain.name;
      best.site.reason = reason;
    };
    for (const Chain* chain : all_chains()) {
      if (!is_wanted(*chain)) continue;
      for (const Linear& linear : linears) {
        auto found = match(*chain, linear);
        if (auto* miss = std::get_if<Miss>(&found)) {
          note(*chain, miss->nearness(), miss->reason);
          continue;
        }
        auto& whole = std::get<Match>(found);
        auto proof = !of_all_.empty()  ? std::variant<Proof, std::string>(of_all_)
                     : taker_of(whole) ? std::variant<Proof, std::string>(taken + (", " + describe(taker_of(whole))))
                                       : surroundings_.prove(whole);
        if (auto* reason = std::get_if<std::string>(&proof)) {
          note(*chain, proven_nearness, *reason);
          continue;
        }
        const auto apart = twins_.apart(whole, std::get<Proof>(proof));
        if (apart.from && apart.word.empty()) {
          note(*chain, proven_nearness,
               "what it reads may be constants once the module is frozen, as what the chain up to " +
                   describe(apart.from) + " reads, and torch would make one of the two");
          continue;
        }
        if (apart.from) tell_apart(whole, std::get<Proof>(proof), apart.word);
        for (const Part& part : whole.parts) claimed_[part.node] = node;
        best.site.rule = chain->name;
        best.site.fused = true;
        best.site.reason.clear();
        return {best.site, Proven{std::move(whole), std::get<Proof>(std::move(proof))}, nullptr};
      }
    }
    if (nearest == 0) best.site.reason = begins_no_rule(linears.front());
    if (nearest == 0 && !options_.rules.empty()) look_at_other_rules(linears, best.site);
    return best;
  }

  // What begins no rule that was asked for may begin another.
  void look_at_other_rules(const std::vector<Linear>& linears, Site& site) const {
    for (const Chain* chain : all_chains()) {
      if (is_wanted(*chain)) continue;
      for (const Linear& linear : linears) {
        const auto found = match(*chain, linear);
        if (std::holds_alternative<Match>(found)) {
          site.rule = chain->name;
          site.reason = "that rule was not asked for";
          return;
        }
        if (std::get<Miss>(found).nearness() > 0) site.reason = begins_no_rule(linears.front(), "that was asked for ");
      }
    }
  }

  // The linear whose chain has one of the parts already, or null.
  const Node* taker_of(const Match& whole) const {
    for (const Part& part : whole.parts)
      if (const auto found = claimed_.find(part.node); found != claimed_.end()) return found->second;
    return nullptr;
  }

  static std::string begins_no_rule(const Linear& linear, const std::string& which = "") {
    auto all = readers(linear.y());
    if (all.empty()) return "its result is used for nothing";
    std::stable_partition(all.begin(), all.end(), [](const Node* reader) { return !is_shape_reader(reader); });
    for (const Node* reader : all)
      if (is_result(reader)) return "its result is " + describe(reader);
    return "its result goes to " + describe(all.front()) + ", with which no rule " + which + "begins";
  }

  Surroundings surroundings_;
  Twins twins_;
  const PassOptions& options_;
  const std::string& of_all_;  // a reason to leave all alone
  std::vector<Finding> findings_;
  std::unordered_map<const Node*, const Node*> claimed_;  // and by which linear
};

std::vector<const Node*> linears_of(Block* top) {
  std::vector<const Node*> all;
  for_each_block(top, [&](Block* block) {
    for (Node* node : block->nodes())
      if (!linears_at(node).empty() || other_linear_at(node)) all.push_back(node);
  });
  return all;
}

// Why a linear was left alone beside chains that are fused already: said of the graph as its author wrote it, which has
// none of the ops and guards that his linear's result may go to here.
void explain_as_written(const std::shared_ptr<Graph>& graph, std::vector<Finding>& findings, const PassOptions& options,
                        const std::string& of_all) {
  std::unordered_map<const Node*, Site*> left;
  for (Finding& finding : findings)
    if (finding.linear) left[finding.linear] = &finding.site;
  if (left.empty()) return;
  const auto written = copy_of(*graph);
  const auto here = linears_of(graph->block());
  const auto there = linears_of(written->block());
  if (here.size() != there.size()) return;
  std::vector<Site> ignored;
  unfuse_graph(written, ignored, "", UnknownLine::none);
  const InPlaceResults results(written->block());
  Search search(written, options, of_all);
  std::unordered_map<const Node*, const Site*> sites;
  for (const Finding& finding : search.findings())
    sites[finding.proven ? finding.proven->match.linear.nodes.front() : finding.linear] = &finding.site;
  for (std::size_t i = 0; i < here.size(); ++i) {
    const auto site = left.find(here[i]);
    const auto as_written = sites.find(there[i]);
    if (site == left.end() || as_written == sites.end()) continue;
    site->second->rule = as_written->second->rule;
    site->second->reason = as_written->second->fused ? taken : as_written->second->reason;
  }
}

// Every chain of the graph, but for those in what it forks. `of_all`: a reason to leave all of the method's chains alone.
void fuse_all(const std::shared_ptr<Graph>& graph, const PassOptions& options, const std::string& of_all,
              PassResult& result) {
  const bool was_fused = has_tailor_op(graph->block());
  normalise(graph);
  const InPlaceResults results(graph->block());
  Search search(graph, options, of_all);
  if (was_fused && options.reasons) explain_as_written(graph, search.findings(), options, of_all);
  std::vector<Proven> proven;
  for (Finding& finding : search.findings()) {
    result.sites.push_back(finding.site);
    if (!finding.proven) continue;
    if (options.specimens) {
      options.specimens->push_back(take_specimen(finding.proven->match));
      options.specimens->back().site = finding.site;
    }
    proven.push_back(std::move(*finding.proven));
  }
  rewrite(*graph, proven);
  results.give_back();
  result.changed = !proven.empty() || result.changed;
}

// With the graphs that are forked in it.
PassResult run_on(const std::shared_ptr<Graph>& graph, const PassOptions& options, const std::string& of_all,
                  const std::shared_ptr<torch::jit::CompilationUnit>& unit) {
  PassResult result;
  if (!has_linear(graph->block()) && !has_tailor_op(graph->block())) return result;
  auto leaver = leaver_of_a_mode(graph->block(), unit);
  result.changed = unfuse_what_was_called(graph, options.is_executors, leaver.has_value());
  if (result.changed) leaver = leaver_of_a_mode(graph->block(), unit);  // that node may be gone
  if (options.fuses) {
    fuse_all(graph, options, leaver && of_all.empty() ? beside(*leaver) : of_all, result);
    if (of_all.empty()) result.changed = settle_after_freezing(*graph) || result.changed;
  }
  for_each_fork(graph->block(), [&](Node&, const std::shared_ptr<Graph>& forked) {
    const PassResult inner = run_on(forked, options, of_all, unit);
    result.sites.insert(result.sites.end(), inner.sites.begin(), inner.sites.end());
    result.changed = result.changed || inner.changed;
  });
  return result;
}

// What a file says of the graph, and of those forked in it, all of which calls were inlined into.
void make_readable(const std::shared_ptr<Graph>& graph) {
  own_constants(graph->block());  // what was found to be one
  widen_tuples(graph->block());
  keep_user_lines(graph->block());
  rename_variables(graph->block());
  for_each_fork(graph->block(), [](Node&, const std::shared_ptr<Graph>& forked) { make_readable(forked); });
}

}  // namespace

PassResult run_pass(const std::shared_ptr<Graph>& graph, const PassOptions& options) {
  own_constants(graph->block());
  // What the executor differentiates has changed places by the time that it asks.
  const bool may_lose = options.is_executors ? has_bare_loop(graph->block()) : may_lose_order(graph->block());
  drop_order(graph->block());
  // While the executor runs, others may compile classes: it looks at none.
  const auto unit = options.is_executors ? nullptr : unit_of(*graph);
  const std::string unfit = options.is_executors ? "" : fits_no_file(*graph);  // nobody makes a file of the executor's
  PassResult result = run_on(graph, options, unfit.empty() ? options.leave : unfit, unit);
  result.unfit = unfit;
  const bool is_fused = has_tailor_op(graph->block());
  if (is_fused && may_lose && !result.changed)  // it calls what was fused
    (unfit.empty() ? result.changed : result.lacks_order) = true;
  if (result.changed) make_readable(graph);
  if (is_fused) keep_order(graph->block());
  return result;
}

bool has_linear(const Block* block) {
  bool found = false;
  for_each_block(const_cast<Block*>(block), [&](Block* inner) {
    for (const Node* node : inner->nodes()) {
      if (is_aten(node, "linear") || is_aten(node, "addmm") || is_aten(node, "matmul") || is_aten(node, "mm"))
        found = true;
      if (const auto forked = forked_graph(node)) found = found || has_linear(forked->block());
    }
  });
  return found;
}

bool has_tailor_op(const Block* block) {
  bool found = false;
  for_each_block(const_cast<Block*>(block), [&](Block* inner) {
    for (const Node* node : inner->nodes()) {
      if (is_ours(node)) found = true;
      if (const auto forked = forked_graph(node)) found = found || has_tailor_op(forked->block());
    }
  });
  return found;
}

bool has_linear_or_op(const Block* block) { return has_linear(block) || has_tailor_op(block); }

}  // namespace tailor
