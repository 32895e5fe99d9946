// fuzz_writer: the command, while system calls fail one after another, and while it is killed: before each of its system
// calls, and at --count random moments. Whatever happens, each output is the old file or the new one, whole, and nothing
// is left but a temporary file that says so in its name. The next run works. So in each scene (writer_bench.cpp): over old
// files, with verification, over the model itself, through symbolic links, to new files.
// Where --count is 1000 or more every call of the first scene is taken, with every kind of failure in every scene, and there
// is a next run each time. Else it is some of each: the kinds of failure in the first scene, and an error in the others.
//   fuzz_writer --count 1000 --json writer.json
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>

#include "program.h"
#include "random.h"
#include "tools/progress.h"
#include "writer_bench.h"
#include "writer_faults.h"

namespace {

using namespace tailor::fuzz;

std::size_t open_files() {
  std::size_t count = 0;
  for (int i = 0; i < 256; ++i) count += fcntl(i, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

class Trials {
 public:
  Trials(Record& record, const Scene& scene, std::uint64_t next_run_of)
      : record_(record), scene_(scene.name), next_run_of_(next_run_of), bench_(scene) {}

  // Every system call fails once.
  void faults(const char* name, Fault fault, int error) {
    for (std::uint64_t number = 0;; ++number) {
      bench_.reset();
      const std::size_t before = open_files();
      strike(number, fault, error);
      const std::string said = bench_.run();
      const Struck struck = disarm();
      if (!struck.happened) {
        record_.tables["by scene"][scene_]["system calls of a run"] = static_cast<std::int64_t>(struck.calls);
        return;
      }
      const std::string what = std::string(name) + " at call " + std::to_string(number) + ", " + struck.call;
      ++record_.counts["failed system calls"];
      ++record_.tables["by scene"][scene_]["failed"];
      ++record_.tables["by call"][struck.call][said.empty() ? "done all the same" : "refused"];
      if (fault == Fault::stays)
        record_.counts["temporary files that could not be removed"] +=
            static_cast<std::int64_t>(bench_.temporary_files());
      std::size_t fresh = 0;
      std::string wrong = bench_.look(fault == Fault::stays, fresh);
      if (wrong.empty() && said.empty() && fresh != bench_.outputs()) wrong = "it says that it is done, and is not";
      if (wrong.empty() && !said.empty() && fresh == bench_.outputs() &&
          said.find("could not be synced") == std::string::npos)
        wrong = "it says that it failed, and did not: " + said;
      if (wrong.empty() && (said.find('\n') != std::string::npos || said.find("not a failure that") == 0)) wrong = said;
      if (wrong.empty() && (fault == Fault::part || fault == Fault::interrupt) && !said.empty())
        wrong = "given up: " + said;
      if (wrong.empty() && open_files() != before) wrong = "a file is left open";
      judge(what, wrong.empty() ? next_run() : wrong);
    }
  }

  // Killed before each system call, for the last time before none.
  void kills_at_calls() {
    for (std::uint64_t number = 0;; ++number) {
      if (!killed([&] { strike(number, Fault::kill, 0); }, 0, "before call " + std::to_string(number))) return;
      ++record_.counts["kills before a system call"];
      ++record_.tables["by scene"][scene_]["kills before one"];
    }
  }

  void kills_at_random(std::int64_t count, std::uint64_t seed, double seconds) {
    Clock clock;
    for (int i = 0; i < 3; ++i) killed([] {}, 0, "");
    const double whole = clock.seconds() / 3;
    Random random(seed);
    std::int64_t kills = 0;
    for (std::int64_t i = 0; kills < count && i < 4 * count && (seconds <= 0 || clock.seconds() < seconds); ++i) {
      const double after = whole * static_cast<double>(random.below(1 << 20)) / (1 << 20);
      const bool in_time = killed([] {}, after, "after " + std::to_string(after) + " s");
      ++(in_time ? kills : record_.counts["runs that ended before the kill"]);
      record_.tables["by scene"][scene_]["kills at random"] += in_time ? 1 : 0;
      progress_.show("kills", static_cast<std::uint64_t>(kills), static_cast<std::uint64_t>(count));
    }
    record_.counts["kills at a random moment"] += kills;
    progress_.clear();
  }

 private:
  // The command in a child that is killed; whether it was.
  template <class Prepare>
  bool killed(const Prepare& prepare, double after, const std::string& when) {
    bench_.reset();
    const pid_t child = fork();
    if (child == 0) {
      prepare();
      bench_.run();
      _exit(0);
    }
    if (after > 0) {
      usleep(static_cast<useconds_t>(1e6 * after));
      kill(child, SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (when.empty()) return false;
    const bool by_signal = WIFSIGNALED(status);
    std::size_t fresh = 0;
    std::string wrong = by_signal && WTERMSIG(status) != SIGKILL
                            ? std::string("crashed: ") + strsignal(WTERMSIG(status))
                            : bench_.look(by_signal, fresh);
    ++record_.tables["new files after a kill"]["out of " + std::to_string(bench_.outputs())][std::to_string(fresh)];
    judge("killed " + when, wrong.empty() ? next_run() : wrong);
    return by_signal;
  }

  // Beside what is left from before.
  std::string next_run() {
    if (trials_++ % next_run_of_ != 0) return {};
    bench_.renew_input();
    const std::string said = bench_.run();
    std::size_t fresh = 0;
    const std::string wrong = said.empty() ? bench_.look(/*temporary_allowed=*/true, fresh) : said;
    return wrong.empty() && fresh == bench_.outputs() ? "" : "the next run: " + wrong;
  }

  void judge(const std::string& what, const std::string& wrong) {
    if (wrong.empty()) return;
    ++record_.failures;
    progress_.clear();
    std::cout << "FAILED: " << scene_ << ": " << what << ": " << wrong << std::endl;
  }

  Record& record_;
  const std::string scene_;
  const std::uint64_t next_run_of_;  // one of so many
  std::uint64_t trials_ = 0;
  Bench bench_;
  tailor::tool::Progress progress_;
};

}  // namespace

int main(int count, char** words) {
  const Arguments arguments(count, words, {{"count", "60"}});
  at::set_num_threads(1);
  if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", /*overwrite=*/0);
  const Clock clock;
  Record record;
  const bool all = arguments.count() >= 1000;
  const auto random_kills = (arguments.count() + 4) / static_cast<std::int64_t>(scenes().size());
  std::uint64_t seed = arguments.seed();
  for (const Scene& scene : scenes()) {
    const bool first = &scene == &scenes().front(), more = all || first;
    if (all)
      first ? take_calls(0, 1) : take_calls(32, 16);
    else
      take_calls(first ? 8 : 6, 64);
    Trials trials(record, scene, all ? 1 : 4);
    trials.faults("an error of the device", Fault::error, EIO);
    if (more) trials.faults("no permission", Fault::error, EACCES);
    if (more) trials.faults("a full disk from there on", Fault::for_good, ENOSPC);
    if (more) trials.faults("an error, after which nothing can be removed", Fault::stays, EIO);
    if (more) trials.faults("a part only", Fault::part, 0);
    if (more) trials.faults("an interruption", Fault::interrupt, 0);
    trials.kills_at_calls();
    trials.kills_at_random(random_kills, seed++, arguments.seconds());
  }

  record.title = "Faults while a file is written";
  record.what =
      "`tailor fuse` and `unfuse` with a report and a picture, over old files and over the model itself, through "
      "symbolic links, and with verification, while each of their system calls fails, is cut short or interrupted, and "
      "while they are killed: each output is the old file or the new one, whole, and the next run works.";
  record.command = arguments.command();
  record.seconds = clock.seconds();
  record.asked = {
      {"kills at a random moment", arguments.count()}, {"kills before a system call", 0}, {"failed system calls", 0}};
  for (const auto& [name, each] : record.counts) std::printf("%8lld %s\n", static_cast<long long>(each), name.c_str());
  for (const auto& [name, rows] : record.tables)
    for (const auto& [row, cells] : rows) {
      std::printf("  %s, %s:", name.c_str(), row.c_str());
      for (const auto& [cell, each] : cells) std::printf(" %s %lld", cell.c_str(), static_cast<long long>(each));
      std::printf("\n");
    }
  std::printf("%.0f s, %lld failed\n", record.seconds, static_cast<long long>(record.failures));
  return finish(record, arguments.json());
}
