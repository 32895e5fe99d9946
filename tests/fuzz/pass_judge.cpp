#include "pass_judge.h"

#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/peephole.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <regex>

#include "pass_doors.h"
#include "pass_follow.h"
#include "pass_ledger.h"

namespace tailor::fuzz {
namespace {

// torch's executor makes no use of what it has learned from earlier calls.
class WithoutProfile {
 public:
  WithoutProfile() { torch::jit::getProfilingMode() = false; }
  ~WithoutProfile() { torch::jit::getProfilingMode() = before_; }

 private:
  const bool before_ = torch::jit::getProfilingMode();
};

class Judge {
 public:
  Judge(const Model& model, const Without& without, Tally& tally)
      : model_(model), without_(without), tally_(tally), compiled_(model, without) {
    plain_graphs_ = plain_graphs_of(compiled_.instance(), model);
  }

  Verdict run() {
    ++tally_.numbers["models"];
    ++tally_.numbers[std::string("models in ") + to_string(model_.type)];
    const std::int64_t spoiled = Spoiler::count();
    Verdict verdict = by_pass();
    for (const Door door : model_.doors)
      if (verdict.kind == Kind::none) verdict = by_door(door);
    if (Spoiler::count() > spoiled)
      ++tally_.numbers[std::string("models spoiled at door ") + to_string(model_.plant_door)];
    return verdict;
  }

 private:
  Verdict by_pass() {
    std::vector<Site> sites;
    const Graphs graphs = through_pass(plain_graphs_, sites, model_.planted_at(Door::pass));
    add_ahead_where_left_alone(graphs);
    Side fused(compiled_.instance(), &graphs, model_.type);
    fused.spoil(model_.planted_at(Door::pass));
    Terms terms;
    terms.writes_may_move = terms.forks = compiled_.forks();  // what is forked torch's executor runs
    const std::string text = compare(plain(), fused, terms);
    const bool wrong = !text.empty() && !is_torchs(Door::pass, terms) && !rounding_decides(terms);
    Places places;
    places.look(graphs);
    const std::string missed = ledger_.note(sites, places, wrong);
    if (wrong) return {Kind::wrong, std::string("door pass,") + text};
    if (!missed.empty()) return {Kind::missed, "door pass, " + missed};
    return {};
  }

  std::string compare(Side plain, Side& fused, const Terms& terms) {
    Referees referees = referees_of(terms);
    if (compiled_.forks()) referees.without_forks = [this] { return without_forks(); };
    return follow(model_, without_, plain, fused, referees, terms, tally_);
  }

  // To the letter: also of what races.
  bool agree(Side one, Side& other, const Terms& terms, const Without& calls) {
    Referees referees = referees_of(terms);
    Tally ignored;
    return follow(model_, calls, one, other, referees, terms, ignored).empty();
  }

  Referees referees_of(const Terms& terms) {
    Referees referees;
    referees.knows = side_that_knows(terms);
    if (model_.type != Type::float64)
      referees.exact.emplace(compiled_.instance(Type::float64), &plain_graphs_, Type::float64);
    return referees;
  }

  Side plain() const { return Side(compiled_.instance(), &plain_graphs_, model_.type); }

  std::optional<Side> side_that_knows(const Terms& terms) {
    if (!model_.silent_writes && !terms.from_file) return std::nullopt;
    if (!visible_) {
      visible_.emplace(model_, without_, Compiled::As{.visibly = true});
      visible_graphs_ = plain_graphs_of(visible_->instance(), model_);
    }
    return Side(visible_->instance(), &visible_graphs_, model_.type);
  }

  Side without_forks() {
    if (!direct_) {
      direct_.emplace(model_, without_, Compiled::As{.forks = false});
      direct_graphs_ = plain_graphs_of(direct_->instance(), model_);
    }
    return Side(direct_->instance(), &direct_graphs_, model_.type);
  }

  Verdict by_door(Door door) {
    ++tally_.numbers[std::string("door ") + to_string(door)];
    Terms terms;
    terms.gradients = door != Door::executor;  // that door is for inference only
    terms.forks = compiled_.forks();
    terms.writes_may_move = is_by_executor(door) || terms.forks;
    terms.from_file = is_by_file(door);
    std::optional<Compiled> another;  // a class is fused once
    if (is_fused_) another.emplace(model_, without_);
    const Compiled& compiled = another ? *another : compiled_;
    is_fused_ = true;
    Graphs graphs, loaded_graphs;
    std::optional<Side> from_file;
    if (is_by_file(door)) {  // both sides come from one
      const torch::jit::Module loaded = saved_and_loaded(compiled.instance());
      loaded_graphs = plain_graphs_of(loaded, model_);
      from_file.emplace(loaded, &loaded_graphs, model_.type);
    }
    Places places;
    Side fused = through(door, compiled, model_, graphs, &places);
    std::optional<Watch> watch;
    if (door == Door::executor) watch.emplace(model_.planted_at(door));
    const std::string text = compare(from_file ? std::move(*from_file) : plain(), fused, terms);
    const bool wrong = !text.empty() && !is_torchs(door, terms) && !rounding_decides(terms);
    const std::string misjudged = ledger_.note_at(door, watch ? ledger_.seen_by(*watch, fused) : places, wrong);
    if (wrong) return {Kind::wrong, std::string("door ") + to_string(door) + "," + text};
    if (!misjudged.empty()) return {Kind::elsewhere, std::string("door ") + to_string(door) + ", " + misjudged};
    return {};
  }

  static bool is_by_executor(Door door) { return door == Door::fuse || door == Door::executor; }

  // Whether torch does otherwise than the graph says: in its executor, or where something is forked, which is the
  // executor's as well.
  bool is_torchs(Door door, const Terms& terms) {
    const bool before = automatic(false);
    bool differs = false;
    if (compiled_.forks()) {
      constexpr int often = 8;  // the executor learns from its first calls, and does something else from then on
      for (int i = 0; i < often && !differs; ++i) {
        Side side = without_forks();
        differs = differs_from_plain(side, terms, without_);
      }
      differs = differs || (model_.writes_unseen && agrees_without_forks(door, terms));
    }
    if (is_by_executor(door) && !differs) {
      const Compiled again(model_, without_);
      Side side(again.instance(), nullptr, model_.type);
      differs = differs_from_plain(side, terms, without_);
    }
    differs = differs || is_of_an_unfinished_profile(door, terms, before) || is_of_gathering(door, terms) ||
              is_dropped(door, terms) || is_dropped_once_inlined(door, terms) || is_simplified(door, terms);
    automatic(before);
    if (differs) ++tally_.numbers["differences of torch's own executor"];
    return differs;
  }

  // The executor does not see that a write to a list's tensors writes to the tensors, nor what a loop hands on: what is forked is
  // then right by luck, on either side. Called at once, and not optimised, both must come to the same.
  bool agrees_without_forks(Door door, const Terms& terms) {
    const Compiled fused(model_, without_, Compiled::As{.forks = false});
    Graphs graphs;
    Side side = through(door, fused, model_, graphs);
    const torch::jit::GraphOptimizerEnabledGuard off(false);
    return agree(without_forks(), side, terms, without_);
  }

  // torch's executor learns from its first call who wants a gradient; where that call raises, it takes it that nobody does
  // of what was not reached. It must then be so that the values are right, that the gradients are too as soon as torch makes
  // no use of what it has learned, and that they are where it learns from calls that do not raise. What is forked the executor
  // runs behind any door. `by_itself`: whether Tailor fuses what it is not asked to, which two of the doors are about.
  bool is_of_an_unfinished_profile(Door door, const Terms& terms, bool by_itself) {
    if (door != Door::fuse && !compiled_.forks()) return false;
    const Without raising = calls_that_raise();
    if (raising == without_) return false;
    Terms values = terms;
    values.values_only = true;
    const auto differs = [&](const Terms& these, const Without& calls) {
      const bool before = automatic(by_itself);
      const Compiled again(model_, without_);
      Graphs graphs;
      Side side = through(door, again, model_, graphs);
      const bool does = differs_from_plain(side, these, calls);
      automatic(before);
      return does;
    };
    if (differs(values, without_) || differs(terms, raising)) return false;
    const WithoutProfile none;
    return !differs(terms, without_);
  }

  // What torch's executor does of what it gathers to differentiate, and does no more once it gathers nothing. A result
  // that nobody has gone back through counts as one with a gradient of zeros, where eager has none; what is computed
  // under no_grad may say that it wants one; and of two linears that raise one is moved behind the other: all else
  // must agree then. And torch does not see that what writes to a list's tensors, or to what a loop hands on, writes
  // to the tensors, and moves their readers past it: unfused as well, but not always the same readers.
  bool is_of_gathering(Door door, const Terms& terms) {
    if (door != Door::fuse) return false;  // the pass's door has agreed exactly
    const auto differs = [&](const Terms& these) {
      const Compiled again(model_, without_);
      Graphs graphs;
      Side side = through(door, again, model_, graphs);
      return differs_from_plain(side, these, without_);
    };
    Terms all_else = terms;
    all_else.zeros_for_none = all_else.any_error = all_else.may_say_it_wants = true;
    if ((!model_.writes_unseen || compiled_.forks()) && differs(all_else)) return false;
    const torch::jit::GraphOptimizerEnabledGuard off(false);  // of this thread
    return !differs(terms);
  }

  // torch drops what nobody reads, and with it what that would raise: from what it loads where it sees all of it, and else in
  // its executor. Both files must then come to the same by the executor, and the plain one not to what its graph says.
  bool is_dropped(Door door, const Terms& terms) {
    if (!is_by_file(door)) return false;
    const Compiled again(model_, without_);
    const torch::jit::Module loaded = saved_and_loaded(again.instance());
    const auto by_executor = [&](const torch::jit::Module& module) { return Side(module, nullptr, model_.type); };
    Side other = by_executor(changed(door, again.instance(), model_));
    other.spoil(model_.planted_at(door));
    if (!agree(by_executor(loaded), other, terms, without_)) return false;
    Side executed = by_executor(loaded);
    return differs_from_plain(executed, terms, without_);
  }

  // It sees more where calls are inlined, as they are in a fused graph: then the plain graph, inlined by torch, saved and loaded
  // must come to the same as it is written.
  bool is_dropped_once_inlined(Door door, const Terms& terms) {
    if (!is_by_file(door)) return false;
    const Compiled plain(model_, without_), again(model_, without_);
    for (const auto& [method, graph] : plain_graphs_) torch::jit::Inline(*plain.instance().get_method(method).graph());
    const torch::jit::Module loaded = saved_and_loaded(plain.instance());
    const Graphs inlined = plain_graphs_of(loaded, model_);
    Graphs graphs;
    Side side = through(door, again, model_, graphs);
    return agree(Side(loaded, &inlined, model_.type), side, terms, without_);
  }

  // torch's executor takes out what undoes itself, `t().t()`, and with it what that would raise. The plain graph must come to
  // the same once torch has simplified it.
  bool is_simplified(Door door, const Terms& terms) {
    if (!is_by_executor(door)) return false;
    Graphs simplified;
    for (const auto& [method, graph] : plain_graphs_) {
      simplified[method] = graph->copy();
      torch::jit::PeepholeOptimize(simplified[method]);
    }
    const Compiled again(model_, without_);
    Graphs graphs;
    Side side = through(door, again, model_, graphs);
    return agree(Side(compiled_.instance(), &simplified, model_.type), side, terms, without_);
  }

  // Whether a plain model comes to something else as soon as its last digits change: then nobody's are right. In float32 it must
  // then be right in float64.
  bool rounding_decides(const Terms& terms) {
    if (model_.type != Type::float64 && (model_.type != Type::float32 || !is_right_in_float64())) return false;
    const bool before = automatic(false);
    Side shaken = plain();
    shaken.shake();
    const bool decides = differs_from_plain(shaken, terms, without_);
    automatic(before);
    if (decides) ++tally_.numbers["draws in which rounding decides"];
    return decides;
  }

  bool is_right_in_float64() const {
    Model twin = model_;
    twin.type = Type::float64;
    Tally ignored;
    return Judge(twin, without_, ignored).run().kind == Kind::none;
  }

  // With what is left out anyway.
  Without calls_that_raise() {
    Without all = without_;
    Side side = plain();
    for (const Call& call : model_.calls) {
      if (without_.contains(call.number)) continue;
      const Outcome outcome = side.call(model_, call);
      if (!outcome.error.empty() && !outcome.backward) all.insert(call.number);
    }
    return all;
  }

  bool differs_from_plain(Side& side, const Terms& terms, const Without& calls) {
    return !agree(plain(), side, terms, calls);
  }

  const Model& model_;
  const Without& without_;
  Tally& tally_;
  Compiled compiled_;
  Graphs plain_graphs_;
  std::optional<Compiled> visible_, direct_;
  Graphs visible_graphs_, direct_graphs_;
  Ledger ledger_{model_, compiled_, plain_graphs_, tally_};
  bool is_fused_ = false;
};

void add_counts(std::map<std::string, Count>& to, const std::map<std::string, Count>& from) {
  for (const auto& [key, count] : from) {
    Count& sum = to[key];
    sum.planted += count.planted;
    sum.fused += count.fused;
    sum.refused += count.refused;
    sum.wrong += count.wrong;
    sum.missed += count.missed;
  }
}

// The model with the values that it has.
Verdict judge_draw(const Model& model, const Without& without, Tally& tally) {
  std::optional<Judge> judge;
  try {
    judge.emplace(model, without, tally);
  } catch (const std::exception& error) {  // the model does not compile
    return {Kind::invalid, error.what()};
  }
  try {
    return judge->run();
  } catch (const std::exception& error) {
    return {Kind::wrong, std::string("raised outside of a call: ") + error.what()};
  }
}

// In dtypes that round, where values nearly cancel, a draw's result is what rounding leaves, and either side may have the
// luck. So it must be right in float64, to all digits that count; and with other values it must be right, too, but for a few:
// a defect is there in most of them.
bool is_luck(Model model, const Without& without) {
  constexpr int draws = 16, bad_ones = 2;
  if (model.type == Type::float64) return false;
  const auto is_wrong = [&](const Model& other) {
    Tally ignored;
    return judge_draw(other, without, ignored).kind == Kind::wrong;
  };
  Model twin = model;
  twin.type = Type::float64;
  if (is_wrong(twin)) return false;
  int wrong = 0;
  for (int i = 0; i < draws && wrong <= bad_ones; ++i) {
    ++model.draw;
    wrong += is_wrong(model);
  }
  return wrong <= bad_ones;
}

}  // namespace

void Tally::add(const Tally& other) {
  add_counts(by_rule, other.by_rule);
  add_counts(by_disturbance, other.by_disturbance);
  add_counts(by_reason, other.by_reason);
  add_counts(by_door, other.by_door);
  for (const auto& [key, number] : other.numbers) numbers[key] += number;
}

std::string plain_words(const std::string& reason) {
  static const std::regex quoted("`[^`]*`( in [a-z]+\\.py:[0-9]+)?"), line(" in [a-z]+\\.py:[0-9]+");
  return std::regex_replace(std::regex_replace(reason, quoted, "…"), line, "");
}

const char* to_string(Kind kind) {
  static const char* names[] = {"none", "wrong", "missed", "otherwise elsewhere", "invalid", "crashed"};
  return names[static_cast<int>(kind)];
}

Verdict judge(const Model& model, const Without& without, Tally& tally) {
  Tally counts;
  Verdict verdict = judge_draw(model, without, counts);
  if (verdict.kind == Kind::wrong && is_luck(model, without)) {
    verdict = {};
    for (auto* by : {&counts.by_rule, &counts.by_disturbance, &counts.by_reason, &counts.by_door})
      for (auto& [key, count] : *by) count.wrong = 0;
    ++counts.numbers["draws in which rounding decides"];
  }
  tally.add(counts);
  return verdict;
}

}  // namespace tailor::fuzz
