// fuzz_writer: the command, while system calls fail one after another, and while it is killed: before each of its system
// calls, and at --count random moments. Whatever happens, each output is the old file or the new one, whole, and nothing
// is left but a temporary file that says so in its name. The next run works.
// Of calls that come by the hundred (reading records, writing them) every sixteenth is taken, and all where --count is
// 1000 or more.
//   fuzz_writer --count 1000 --json writer.json
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <sstream>

#include "../tools/files.h"
#include "files_originals.h"
#include "program.h"
#include "random.h"
#include "tools/commands.h"
#include "tools/progress.h"
#include "writer_faults.h"

namespace {

using namespace tailor::fuzz;
namespace tool = tailor::tool;

class Bench {
 public:
  Bench() {
    tool::put(input(), originals().at(2).data);
    reset();
    const std::string wrong = run();
    if (!wrong.empty()) throw std::runtime_error(wrong);
    for (const char* name : outputs) new_[name] = without_id(name);
  }

  // The command; what it says if it fails.
  std::string run() {
    tool::Request request;
    request.command = tool::Command::fuse;
    request.input = input();
    request.output = folder_ / "out.pt";
    request.report = folder_ / "report.json";
    request.svg = folder_ / "graph.svg";
    request.verify = false;
    std::ostringstream out;
    try {
      tool::fuse(request, out);
      return {};
    } catch (const tool::Failure& failure) {
      return failure.what();
    } catch (const std::exception& error) {
      return std::string("not a failure that the command knows: ") + error.what();
    }
  }

  void reset() {
    for (const std::string& name : folder_.names())
      if (name != "model.pt") unlink((folder_ / name).c_str());
    for (const char* name : outputs) {
      tool::put(folder_ / name, std::string("the old file"));
      chmod((folder_ / name).c_str(), 0600);
    }
  }

  std::size_t temporary_files() const {
    const auto names = folder_.names();
    return static_cast<std::size_t>(std::ranges::count_if(names, is_temporary));
  }

  // What is wrong with what is there: nothing, where each output is old or new. Counts the new ones.
  std::string look(bool temporary_allowed, std::size_t& fresh) const {
    fresh = 0;
    for (const std::string& name : folder_.names()) {
      if (name == "model.pt") continue;
      if (!new_.contains(name)) {
        if (!is_temporary(name) || !temporary_allowed) return "'" + name + "' is left behind";
        continue;
      }
      struct stat status {};
      if (stat((folder_ / name).c_str(), &status) != 0 || (status.st_mode & 077) != 0)
        return "'" + name + "' may now be read by others";
      if (tool::get(folder_ / name) == tool::data_of("the old file")) continue;
      if (without_id(name) != new_.at(name)) return "'" + name + "' is neither the old file nor the new one";
      ++fresh;
    }
    for (const auto& [name, contents] : new_)
      if (access((folder_ / name).c_str(), F_OK) != 0) return "'" + name + "' is gone";
    return {};
  }

  std::string input() const { return folder_ / "model.pt"; }
  static constexpr const char* outputs[] = {"report.json", "graph.svg", "out.pt"};
  static constexpr std::size_t all = std::size(outputs);

 private:
  static bool is_temporary(const std::string& name) { return name.find(".tailor-tmp-") != std::string::npos; }

  // What the file holds. torch gives each archive that it writes a number of its own.
  Contents without_id(const std::string& name) const {
    const tool::Data data = tool::get(folder_ / name);
    if (!name.ends_with(".pt")) return {{"", std::string(data.begin(), data.end())}};
    try {
      tool::check_module_archive(tool::MemoryBytes(data), name);
    } catch (const tool::Failure& failure) {
      return {{"damaged", failure.what()}};
    }
    Contents contents = as_torch_reads(data);
    contents.erase(".data/serialization_id");
    return contents;
  }

  tool::Folder folder_;
  std::map<std::string, Contents> new_;
};

std::size_t open_files() {
  std::size_t count = 0;
  for (int i = 0; i < 256; ++i) count += fcntl(i, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

class Trials {
 public:
  explicit Trials(Record& record) : record_(record) {}

  // Every system call fails once.
  void faults(const char* name, Fault fault, int error) {
    for (std::uint64_t number = 0;; ++number) {
      bench_.reset();
      const std::size_t before = open_files();
      strike(number, fault, error);
      const std::string said = bench_.run();
      const Struck struck = disarm();
      if (!struck.happened) {
        record_.counts["system calls of one run"] = static_cast<std::int64_t>(struck.calls);
        return;
      }
      const std::string what = std::string(name) + " at call " + std::to_string(number) + ", " + struck.call;
      ++record_.counts["failed system calls"];
      ++record_.tables["by call"][struck.call][said.empty() ? "done all the same" : "refused"];
      if (fault == Fault::stays)
        record_.counts["temporary files that could not be removed"] +=
            static_cast<std::int64_t>(bench_.temporary_files());
      std::size_t fresh = 0;
      std::string wrong = bench_.look(fault == Fault::stays, fresh);
      if (wrong.empty() && said.empty() && fresh != Bench::all) wrong = "it says that it is done, and is not";
      if (wrong.empty() && !said.empty() && fresh == Bench::all &&
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
    }
  }

  void kills_at_random(std::int64_t count, std::uint64_t seed, double seconds) {
    Clock clock;
    for (int i = 0; i < 3; ++i) killed([] {}, 0, "");
    const double whole = clock.seconds() / 3;
    Random random(seed);
    std::int64_t& kills = record_.counts["kills at a random moment"];
    for (std::int64_t i = 0; kills < count && i < 4 * count && (seconds <= 0 || clock.seconds() < seconds); ++i) {
      const double after = whole * static_cast<double>(random.below(1 << 20)) / (1 << 20);
      const bool in_time = killed([] {}, after, "after " + std::to_string(after) + " s");
      ++(in_time ? kills : record_.counts["runs that ended before the kill"]);
      progress_.show("kills", static_cast<std::uint64_t>(kills), static_cast<std::uint64_t>(count));
    }
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
    ++record_.tables["after a kill"]["new files out of " + std::to_string(Bench::all)][std::to_string(fresh)];
    judge("killed " + when, wrong.empty() ? next_run() : wrong);
    return by_signal;
  }

  // Beside what is left from before.
  std::string next_run() {
    const std::string said = bench_.run();
    std::size_t fresh = 0;
    const std::string wrong = said.empty() ? bench_.look(/*temporary_allowed=*/true, fresh) : said;
    return wrong.empty() && fresh == Bench::all ? "" : "the next run: " + wrong;
  }

  void judge(const std::string& what, const std::string& wrong) {
    if (wrong.empty()) return;
    ++record_.failures;
    progress_.clear();
    std::cout << "FAILED: " << what << ": " << wrong << std::endl;
  }

  Record& record_;
  Bench bench_;
  tool::Progress progress_;
};

}  // namespace

int main(int count, char** words) {
  const Arguments arguments(count, words, {{"count", "60"}});
  at::set_num_threads(1);
  if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", /*overwrite=*/0);
  const Clock clock;
  Record record;
  take_every_call(arguments.count() >= 1000);
  Trials trials(record);
  trials.faults("an error of the device", Fault::error, EIO);
  trials.faults("no permission", Fault::error, EACCES);
  trials.faults("a full disk from there on", Fault::for_good, ENOSPC);
  trials.faults("an error, after which nothing can be removed", Fault::stays, EIO);
  trials.faults("a part only", Fault::part, 0);
  trials.faults("an interruption", Fault::interrupt, 0);
  trials.kills_at_calls();
  trials.kills_at_random(arguments.count(), arguments.seed(), arguments.seconds());

  record.title = "Faults while a file is written";
  record.what =
      "`tailor fuse` with a report and a picture, while each of its system calls fails, is cut short or interrupted, "
      "and "
      "while it is killed: each output is the old file or the new one, whole, and the next run works.";
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
