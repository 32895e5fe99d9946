// Differential fuzzing of the pass: random TorchScript models with planted chains, unfused and fused.
//
//   fuzz_pass --count 100000 --seconds 360        as many as fit
//   fuzz_pass --seed 1 --model 4711               one model again; --show prints it, --minimise what fails in it
//   fuzz_pass --seed 1 --model 4711 --without 3,8 what the minimiser has left of it
//   fuzz_pass --count 100 --plant gradient        whether it finds what is wrong with fused sides that it spoils itself
//   fuzz_pass --kept tests/fuzz/models            what has failed once; --file for one of them, as --model
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>

#include "pass_generate.h"
#include "pass_kept.h"
#include "pass_minimise.h"
#include "pass_plant.h"
#include "pass_report.h"
#include "pass_spell.h"
#include "pass_text.h"
#include "pass_workers.h"
#include "program.h"
#include "tailor/tailor.h"

namespace tailor::fuzz {
namespace {

struct Options {
  Plan plan;
  std::int64_t model = -1;
  Without without;
  bool show = false, minimise = false, read_back = false;
  const Fault* fault = nullptr;
  std::string file, kept, json, command;

  // By its number, or the file's. `read_back`: as it would be if it were kept.
  Model model_of(std::int64_t number) const {
    Model model = file.empty() ? generate(seed_of(plan.seed, number)) : model_in(file);
    if (read_back) model = written_and_read(model);
    if (fault) plant(model, *fault);
    return model;
  }
};

const Fault* fault_called(const std::string& name) {
  if (const Fault* fault = find_fault(name)) return fault;
  std::cerr << "fuzz_pass: no fault is called '" << name << "'. There are";
  for (const Fault& fault : all_faults()) std::cerr << " " << fault.name;
  std::cerr << std::endl;
  std::exit(2);
}

Options options_of(int count, char** words) {
  const Arguments arguments(
      count, words,
      {{"jobs", "2"}, {"failures", "10"}, {"model", "-1"}, {"without", ""}, {"plant", ""}, {"file", ""}, {"kept", ""}},
      {"show", "minimise", "read-back"});
  Options options;
  options.plan.count = arguments.count();
  options.plan.seed = arguments.seed();
  options.plan.seconds = arguments.seconds();
  options.plan.jobs = static_cast<int>(std::max<std::int64_t>(1, arguments.number("jobs")));
  options.plan.most_failures = static_cast<std::size_t>(std::max<std::int64_t>(1, arguments.number("failures")));
  options.model = arguments.number("model");
  std::istringstream numbers(arguments.text("without"));
  for (int n = 0; numbers >> n; numbers.ignore()) options.without.insert(n);
  options.show = arguments.has("show");
  options.minimise = arguments.has("minimise");
  options.read_back = arguments.has("read-back");
  options.file = arguments.text("file");
  options.kept = arguments.text("kept");
  if (const std::string& name = arguments.text("plant"); !name.empty()) options.fault = fault_called(name);
  options.json = arguments.json();
  options.command = arguments.command();
  return options;
}

class Silence final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

// What every process needs: made here once, before the first fork. Backward and forked calls start threads, which do not
// survive that.
void warm_up() {
  static Silence silence;
  c10::WarningUtils::set_warning_handler(&silence);
  at::set_num_threads(1);
  for (int i = 0, done = 0; done < 3; ++i) {
    Model model = generate(seed_of(0, i));
    if (description_of(model, {}).find("fork(") != std::string::npos) continue;
    for (Call& call : model.calls) call.gradients = false;
    Tally ignored;
    judge(model, {}, ignored);
    ++done;
  }
}

// A rule that is never planted is never looked at, and no table would say so.
bool every_rule_is_planted() {
  if (planted_rules() == tailor::rules()) return true;
  std::cerr << "fuzz_pass: the rules in pass_spell.cpp are not those of the library, which are";
  for (const std::string& rule : tailor::rules()) std::cerr << " " << rule;
  std::cerr << std::endl;
  return false;
}

void explain(const Options& options, const Failure& failure) {
  const Model model = options.model_of(failure.model);
  const Without without = minimised(model, failure.verdict);
  const Verdict left = judge_apart(model, without);
  std::cout << "\n"
            << to_string(failure.verdict.kind) << ", model " << failure.model << ": " << left.text << "\n"
            << description_of(model, without)
            << "## Kept in a file in tests/fuzz/models, these lines are judged in every run of the tests.\n"
            << "## Again: fuzz_pass ";
  if (options.file.empty())
    std::cout << "--seed " << options.plan.seed << " --model " << failure.model;
  else
    std::cout << "--file " << options.file;
  std::string separator = " --without ";
  for (const int n : without) {
    std::cout << separator << n;
    separator = ",";
  }
  std::cout << std::endl;
}

int run_one(const Options& options) {
  const Model model = options.model_of(options.model);
  if (options.show) std::cout << description_of(model, options.without);
  Tally tally;
  if (options.minimise) {
    const Verdict verdict = judge_apart(model, options.without);
    if (verdict.kind != Kind::none) explain(options, {options.model, verdict});
    return verdict.kind == Kind::none ? 0 : 1;
  }
  const Verdict verdict = judge(model, options.without, tally);
  if (options.show) print_tables(std::cout, tally);
  std::cout << to_string(verdict.kind) << (verdict.text.empty() ? "" : ": ") << verdict.text << "\n";
  return verdict.kind == Kind::none ? 0 : 1;
}

// Whether the judge finds what is planted.
int run_planted(Options options) {
  options.plan.most_failures = std::numeric_limits<std::size_t>::max();
  const Result result = run_all(options.plan);
  return is_found(*options.fault, result, std::cout) ? 0 : 1;
}

// Each in a process of its own.
int run_kept(const std::string& folder) {
  const std::vector<std::string> files = files_in(folder);
  bool good = !files.empty();
  for (const std::string& file : files) {
    const Verdict verdict = judge_apart(model_in(file), {});
    std::cout << to_string(verdict.kind) << (verdict.text.empty() ? "" : ": ") << verdict.text << ", " << file
              << std::endl;
    good = good && verdict.kind == Kind::none;
  }
  std::cout << files.size() << " models kept in " << folder << std::endl;
  return good ? 0 : 1;
}

int run(Options options) {
  options.plan.progress = ::isatty(2) != 0;
  const Result result = run_all(options.plan);
  const auto models = result.tally.numbers.contains("models") ? result.tally.numbers.at("models") : 0;
  print_tables(std::cout, result.tally);
  std::cout << models << " models in " << result.seconds << " s on " << options.plan.jobs << " processes, "
            << result.failures.size() << " failures" << std::endl;
  for (const Failure& failure : result.failures)
    std::cout << to_string(failure.verdict.kind) << ", model " << failure.model << ": " << failure.verdict.text << "\n";
  constexpr std::size_t most_explained = 3;  // the others are often the same
  for (std::size_t i = 0; i < result.failures.size() && i < most_explained; ++i) explain(options, result.failures[i]);
  Record record = record_of(options.command, result);
  record.asked = {{"models", options.plan.count}};
  return finish(record, options.json);
}

}  // namespace
}  // namespace tailor::fuzz

int main(int argc, char** argv) {
  using namespace tailor::fuzz;
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // a backward asks for GPUs, and a process that has some must not fork
  Options options = options_of(argc, argv);
  options.plan.model = [&](std::int64_t number) { return options.model_of(number); };
  if (!every_rule_is_planted()) return 1;
  warm_up();
  if (!options.kept.empty()) return run_kept(options.kept);
  if (options.model >= 0 || !options.file.empty()) return run_one(options);
  return options.fault ? run_planted(options) : run(options);
}
