// Memory stays flat: over many calls of the ops on every path, errors and gradients among them, and over many rounds of
// load, inspect, fuse, save, load, run and unfuse. What counts is the resident memory of the process, from when a fifth of
// the work is done: allocators and torch's caches have then settled. --leak N loses N bytes in each call and round, and
// fails if that is not noticed.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <malloc.h>
#include <torch/csrc/jit/serialization/import.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>

#include "passes/ir.h"
#include "stress.h"
#include "tailor/tailor.h"
#include "threads_models.h"

namespace tailor::test {
namespace {

constexpr std::int64_t settled = 1 << 20;  // what resident memory may grow by, whatever was done

std::int64_t resident() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0;
  std::int64_t pages = 0;
  file >> all >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

class Memory {
 public:
  explicit Memory(Stress& stress) : stress_(stress) {
    for (const std::string& body : bodies()) {
      models_.emplace_back(body);
      std::ostringstream file;
      models_.back().plain().save(file);
      files_.push_back(file.str());
      trained_.push_back(models_.back().fused().deepcopy());
    }
  }

  // Does `work` so often, and fails if memory grew by more than `bytes` each time.
  void flat(const std::string& what, std::int64_t count, std::int64_t bytes,
            const std::function<void(std::int64_t)>& work) {
    if (count == 0) return;
    stress_.ask(what, count);
    const std::int64_t warm = count / 5;
    std::int64_t before = 0;
    std::int64_t done = 0;
    for (; done < count && stress_.has_time(); ++done) {
      if (done == warm) before = resident();
      work(done);
      if (const auto leak = stress_.number("leak")) lose(static_cast<std::size_t>(leak));
      if (done % 64 == 0) stress_.show(done, count);
    }
    if (done <= warm) return stress_.fail(what + ": there was no time to see anything");
    const std::int64_t grown = resident() - before;
    const std::int64_t allowed = bytes * (done - warm) + settled;
    stress_.count(what, done);
    stress_.count("bytes grown by " + what, grown);
    stress_.count("bytes allowed for " + what, allowed);
    if (grown > allowed)
      stress_.fail(what + ": memory grew by " + std::to_string(grown) + " bytes, " + std::to_string(allowed) +
                   " are allowed");
  }

  void call(std::int64_t i) {
    const auto place = static_cast<std::size_t>(i);
    const SharedModel& model = models_[place % models_.size()];
    const Mode mode = i % 16 < 10 ? Mode::eval : i % 16 < 13 ? Mode::training : Mode::gradients;
    torch::jit::Module module = mode == Mode::training ? trained_[place % models_.size()] : model.fused();
    if (i % 16 == 15) {  // refused: the wrong width
      try {
        module.forward({at::ones({3, 6}, at::kDouble)});
        stress_.fail(model.name() + ": takes an input of the wrong width");
      } catch (const std::exception&) {
      }
      return;
    }
    module.setattr("training", mode == Mode::training);
    compare(model, model.call(module, mode, place % SharedModel::inputs), mode, place % SharedModel::inputs);
  }

  void round(std::int64_t i) {
    const SharedModel& model = models_[static_cast<std::size_t>(i) % models_.size()];
    torch::jit::Module module = load(i);
    inspect(module);
    if (fuse(module).fused() == 0) stress_.fail(model.name() + ": not fused");
    std::stringstream file;
    module.save(file);
    torch::jit::Module loaded = torch::jit::load(file);
    for (std::size_t turn = 0; turn < 3; ++turn) compare(model, model.call(loaded, Mode::eval, turn), Mode::eval, turn);
    unfuse(loaded);
    compare(model, model.call(loaded, Mode::eval, 0), Mode::eval, 0);
  }

 private:
  torch::jit::Module load(std::int64_t i) const {
    std::istringstream file(files_[static_cast<std::size_t>(i) % files_.size()]);
    return torch::jit::load(file);
  }

  static void lose(std::size_t bytes) {
    static void* volatile last;
    last = std::malloc(bytes);
    *static_cast<char*>(last) = 1;
  }

  void compare(const SharedModel& model, const Answer& got, Mode mode, std::size_t input) {
    const std::string difference = got.difference(model.wanted(mode, input));
    if (!difference.empty()) stress_.fail(model.name() + ": " + difference);
  }

  Stress& stress_;
  std::vector<SharedModel> models_;
  std::vector<std::string> files_;
  std::vector<torch::jit::Module> trained_;  // of the same classes, with statistics of their own
};

int run_all(int argc, char** argv) {
  Stress stress("Memory",
                "Calls of the fused ops, and rounds of load, inspect, fuse, save, load, run and unfuse, while resident "
                "memory stays flat.",
                fuzz::Arguments(argc, argv, {{"count", "1000000"}, {"rounds", "10000"}, {"leak", "0"}}));
  at::set_num_threads(1);
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // set, it stays: glibc raises its own as large blocks come and go
  Memory memory(stress);
  memory.flat("calls", stress.number("count"), 40, [&](std::int64_t i) { memory.call(i); });
  memory.flat("rounds", stress.number("rounds"), 100, [&](std::int64_t i) { memory.round(i); });
  if (stress.number("leak") == 0) return stress.finish();
  std::printf("a leak of %lld bytes was %snoticed\n", static_cast<long long>(stress.number("leak")),
              stress.failures() > 0 ? "" : "not ");
  return stress.failures() > 0 ? 0 : 1;
}

}  // namespace
}  // namespace tailor::test

int main(int argc, char** argv) { return tailor::test::run_all(argc, argv); }
