// Threads over shared modules: most of them call, one fuses, unfuses, inspects, saves and loads modules of its own, one
// changes the settings. Every result is compared with that of the unfused model. Build it with TAILOR_SANITIZE=thread to
// see races that do no harm on the day; --race 1 plants one, to see that it would be seen.
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/serialization/import.h>

#include <atomic>
#include <random>
#include <sstream>
#include <thread>

#include "passes/ir.h"
#include "stress.h"
#include "tailor/tailor.h"
#include "threads_models.h"

namespace tailor::test {
namespace {

using Models = std::vector<SharedModel>;

struct Work {
  Stress& stress;
  const Models& models;
  std::atomic<std::int64_t> calls{0};
  std::atomic<int> callers{0};  // still at work
  std::int64_t unguarded = 0;   // with --race 1

  void compare(const SharedModel& model, const std::string& how, Mode mode, std::size_t input, const Answer& got) {
    const std::string difference = got.difference(model.wanted(mode, input));
    if (!difference.empty())
      stress.fail(model.name() + ", " + how + ", mode " + std::to_string(static_cast<int>(mode)) + ": " + difference);
  }
};

// Turns whatever a thread throws into a failure.
template <class Body>
void guarded(Work& work, const char* who, Body body) {
  try {
    body();
  } catch (const c10::Error& error) {
    work.stress.fail(std::string(who) + ": " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    work.stress.fail(std::string(who) + ": " + error.what());
  }
}

void caller(Work& work, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<torch::jit::Module> own_fused, own_plain;  // of the shared classes, with buffers of their own
  for (const SharedModel& model : work.models)
    for (auto* own : {&own_fused, &own_plain}) {
      own->push_back((own == &own_fused ? model.fused() : model.plain()).deepcopy());
      own->back().setattr("training", true);
    }
  const auto count = work.stress.number("count");
  for (std::int64_t i = 0; i < count && work.stress.has_time(); ++i) {
    const std::size_t place = random() % work.models.size();
    const SharedModel& model = work.models[place];
    const std::size_t input = random() % SharedModel::inputs;
    const bool plain = random() % 8 == 0;  // the executor fuses these, while the setting for that changes
    const auto choice = random() % 8;
    const Mode mode = choice < 5 ? Mode::eval : choice < 7 ? Mode::training : Mode::gradients;
    torch::jit::Module module =
        mode == Mode::training ? (plain ? own_plain : own_fused)[place] : (plain ? model.plain() : model.fused());
    work.compare(model, plain ? "unfused" : "fused", mode, input, model.call(module, mode, input));
    work.calls.fetch_add(1, std::memory_order_relaxed);
    if (work.stress.number("race") > 0) ++work.unguarded;
  }
}

// A fresh class each time: what a thread fuses must not be run by another meanwhile.
void fuser(Work& work) {
  std::int64_t rounds = 0;
  for (; work.callers.load() > 0; ++rounds) {
    const SharedModel& model = work.models[static_cast<std::size_t>(rounds) % work.models.size()];
    torch::jit::Module module = model.plain().clone();
    const std::size_t input = static_cast<std::size_t>(rounds) % SharedModel::inputs;
    const auto run = [&](torch::jit::Module& it, const char* how) {
      work.compare(model, how, Mode::eval, input, model.call(it, Mode::eval, input));
    };
    if (inspect(module).fused() != fuse(module).fused()) work.stress.fail(model.name() + ": inspect and fuse disagree");
    if (!needs_tailor(module)) work.stress.fail(model.name() + ": not fused while others ran");
    run(module, "fused meanwhile");
    inspect(model.fused());  // which others are running
    std::stringstream file;
    model.fused().save(file);
    torch::jit::Module loaded = torch::jit::load(file);
    run(loaded, "saved and loaded meanwhile");
    unfuse(module);
    if (needs_tailor(module)) work.stress.fail(model.name() + ": not unfused while others ran");
    run(module, "unfused meanwhile");
  }
  work.stress.count("rounds of inspect, fuse, save, load and unfuse meanwhile", rounds);
}

void switcher(Work& work) {
  std::int64_t rounds = 0;
  for (; work.callers.load() > 0; ++rounds) {
    automatic(rounds % 2 == 0);
    calls_of("linear_mul_batch_norm");
    if (rounds % 64 == 0) {
      torch::jit::Stack none;
      c10::Dispatcher::singleton().findSchemaOrThrow("tailor::reset_calls", "").callBoxed(none);
    }
    work.stress.show(work.calls, work.stress.number("count") * work.stress.number("threads"));
    std::this_thread::yield();
  }
  work.stress.count("changes of the settings meanwhile", rounds);
}

int run_all(int argc, char** argv) {
  Stress stress(
      "Threads",
      "Threads call shared fused and unfused modules, in eval, in training and with gradients, while one fuses "
      "and unfuses others and one changes the settings.",
      fuzz::Arguments(argc, argv, {{"count", "100000"}, {"threads", "16"}, {"race", "0"}}));
  at::set_num_threads(1);
  at::manual_seed(static_cast<std::uint64_t>(stress.number("seed")));
  const Models models(bodies().begin(), bodies().end());
  Work work{stress, models};
  work.callers = static_cast<int>(stress.number("threads"));
  stress.ask("calls", stress.number("count") * stress.number("threads"));
  std::vector<std::thread> threads;
  for (std::int64_t i = 0; i < stress.number("threads"); ++i)
    threads.emplace_back([&work, seed = static_cast<std::uint64_t>(stress.number("seed") * 1000 + i)] {
      guarded(work, "a calling thread", [&] { caller(work, seed); });
      --work.callers;
    });
  threads.emplace_back([&work] { guarded(work, "the fusing thread", [&] { fuser(work); }); });
  threads.emplace_back([&work] { guarded(work, "the thread with the settings", [&] { switcher(work); }); });
  for (auto& thread : threads) thread.join();
  stress.count("threads", stress.number("threads"));
  stress.count("calls", work.calls);
  return stress.finish();
}

}  // namespace
}  // namespace tailor::test

int main(int argc, char** argv) { return tailor::test::run_all(argc, argv); }
