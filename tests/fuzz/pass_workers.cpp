#include "pass_workers.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>
#include <thread>

#include "random.h"

namespace tailor::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t batch = 2000;  // models a process: what torch never frees goes with it
// Seconds until it hangs. torch takes 30 to optimise what the largest models fork, longer where cores are shared.
constexpr double longest_model = 180.0;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// What a worker is at, where its parent can see it also after a crash.
struct Place {
  std::atomic<std::int64_t> model, done;
};

struct Worker {
  pid_t process = -1;
  int from = -1;  // a pipe
  std::string text;
  std::int64_t seen = -1;
  Clock::time_point since;
};

void say(int to, const std::string& text) {
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = ::write(to, text.data() + written, text.size() - written);
    if (n <= 0) std::_Exit(3);
    written += static_cast<std::size_t>(n);
  }
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\t') c = ' ';
  return text;
}

void say(std::ostream& out, const char* table, const std::map<std::string, Count>& counts) {
  for (const auto& [key, c] : counts)
    out << "count\t" << table << '\t' << one_line(key) << '\t' << c.planted << ' ' << c.fused << ' ' << c.refused << ' '
        << c.wrong << ' ' << c.missed << '\n';
}

void say(int to, const Tally& tally) {
  std::ostringstream out;
  say(out, "rule", tally.by_rule);
  say(out, "disturbance", tally.by_disturbance);
  say(out, "reason", tally.by_reason);
  say(out, "door", tally.by_door);
  for (const auto& [key, number] : tally.numbers) out << "number\t" << key << '\t' << number << '\n';
  say(to, out.str());
}

void hear(const std::string& line, Result& result) {
  std::istringstream in(line);
  std::string word, table, key;
  std::getline(in, word, '\t');
  if (word == "count") {
    Tally one;
    std::getline(in, table, '\t');
    std::getline(in, key, '\t');
    Count c;
    in >> c.planted >> c.fused >> c.refused >> c.wrong >> c.missed;
    const std::map<std::string, decltype(&one.by_rule)> tables = {{"rule", &one.by_rule},
                                                                  {"disturbance", &one.by_disturbance},
                                                                  {"reason", &one.by_reason},
                                                                  {"door", &one.by_door}};
    (*tables.at(table))[key] = c;
    result.tally.add(one);
  } else if (word == "number") {
    std::getline(in, key, '\t');
    std::int64_t n = 0;
    in >> n;
    result.tally.numbers[key] += n;
  } else if (word == "failure") {
    Failure failure{};
    int kind = 0;
    in >> failure.model >> kind;
    in.ignore();
    std::getline(in, failure.verdict.text);
    failure.verdict.kind = static_cast<Kind>(kind);
    result.failures.push_back(failure);
  }
}

// Takes what has come through the pipe; false at its end.
bool listen(Worker& worker, Result& result) {
  char buffer[1 << 16];
  const ssize_t n = ::read(worker.from, buffer, sizeof buffer);
  if (n < 0) return true;
  worker.text.append(buffer, static_cast<std::size_t>(n));
  std::size_t begin = 0;
  for (auto end = worker.text.find('\n'); end != std::string::npos; end = worker.text.find('\n', begin)) {
    hear(worker.text.substr(begin, end - begin), result);
    begin = end + 1;
  }
  worker.text.erase(0, begin);
  return n > 0;
}

// A fork in which threads may start. torch mends its pool in a child when it is first asked for it, and does not lock
// that: two threads that start at once would meet there.
pid_t fork_for_models() {
  const pid_t process = ::fork();
  if (process == 0) at::set_num_threads(1);
  return process;
}

class Crew {
 public:
  explicit Crew(const Plan& plan) : plan_(plan), next_(plan.first) {
    void* memory = ::mmap(nullptr, sizeof(Place) * static_cast<std::size_t>(plan.jobs), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    places_ = static_cast<Place*>(memory);
    workers_.resize(static_cast<std::size_t>(plan.jobs));
  }

  Result run() {
    for (std::size_t i = 0; i < workers_.size(); ++i) start(i);
    Clock::time_point shown{};
    while (std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.process >= 0; })) {
      for (std::size_t i = 0; i < workers_.size(); ++i)
        if (workers_[i].process >= 0) look_after(i);
      if (plan_.progress && since(shown) > 1) {
        shown = Clock::now();
        show();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (plan_.progress) std::cerr << "\r\033[K";
    result_.seconds = since(begin_);
    return std::move(result_);
  }

 private:
  bool is_over() const {
    return (plan_.seconds > 0 && since(begin_) > plan_.seconds) || result_.failures.size() >= plan_.most_failures;
  }

  void start(std::size_t i) {
    Worker& worker = workers_[i];
    worker = {};
    const std::int64_t end = plan_.count > 0 ? std::min(next_ + batch, plan_.first + plan_.count) : next_ + batch;
    if (is_over() || next_ >= end) return;
    start(i, next_, end);
    next_ = end;
  }

  void start(std::size_t i, std::int64_t first, std::int64_t end) {
    Worker& worker = workers_[i];
    int ends[2];
    if (::pipe2(ends, O_NONBLOCK) != 0) throw std::runtime_error("no pipe");
    worker = {-1, ends[0], "", -1, Clock::now()};
    ends_[i] = end;
    worker.process = fork_for_models();
    if (worker.process != 0) {
      ::close(ends[1]);
      return;
    }
    ::fcntl(ends[1], F_SETFL, 0);
    work(places_[i], ends[1], first, end);
    std::_Exit(0);
  }

  void work(Place& place, int to, std::int64_t first, std::int64_t end) {
    Tally tally;
    std::size_t failures = 0;
    for (std::int64_t model = first; model < end && !is_over() && failures < plan_.most_failures; ++model) {
      place.model = model;
      const Verdict verdict = judge(plan_.model(model), {}, tally);
      ++place.done;
      if (verdict.kind == Kind::none) continue;
      ++failures;
      say(to, "failure\t" + std::to_string(model) + " " + std::to_string(static_cast<int>(verdict.kind)) + " " +
                  one_line(verdict.text) + "\n");
    }
    say(to, tally);
  }

  void look_after(std::size_t i) {
    Worker& worker = workers_[i];
    const std::int64_t model = places_[i].model;
    if (model != worker.seen) {
      worker.seen = model;
      worker.since = Clock::now();
    } else if (since(worker.since) > longest_model) {
      ::kill(worker.process, SIGKILL);
    }
    listen(worker, result_);
    int status = 0;
    if (::waitpid(worker.process, &status, WNOHANG) != worker.process) return;
    while (listen(worker, result_)) {
    }
    ::close(worker.from);
    worker.process = -1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return start(i);
    const std::string how = WIFSIGNALED(status) ? std::string(::strsignal(WTERMSIG(status)))
                                                : "exit " + std::to_string(WEXITSTATUS(status));
    result_.failures.push_back({model, {Kind::crashed, how}});
    if (is_over() || model + 1 >= ends_[i]) return start(i);
    start(i, model + 1, ends_[i]);
  }

  void show() const {
    std::int64_t done = 0;
    for (std::size_t i = 0; i < workers_.size(); ++i) done += places_[i].done;
    std::cerr << "\r\033[K" << done << " models, "
              << static_cast<std::int64_t>(static_cast<double>(done) / since(begin_)) << " a second, "
              << result_.failures.size() << " failures" << std::flush;
  }

  const Plan& plan_;
  std::int64_t next_;
  Place* places_;
  std::vector<Worker> workers_;
  std::map<std::size_t, std::int64_t> ends_;
  Result result_;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

std::uint64_t seed_of(std::uint64_t seed, std::int64_t model) {
  Random random(seed * 0x2545f4914f6cdd1d + static_cast<std::uint64_t>(model));
  random.next();
  return random.next();
}

Result run_all(const Plan& plan) { return Crew(plan).run(); }

Verdict judge_apart(const Model& model, const Without& without) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t process = fork_for_models();
  if (process == 0) {
    ::alarm(static_cast<unsigned>(longest_model));
    Tally ignored;
    const Verdict verdict = judge(model, without, ignored);
    say(ends[1], std::to_string(static_cast<int>(verdict.kind)) + " " + verdict.text);
    std::_Exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(process, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || text.size() < 2) return {Kind::crashed, "crashed"};
  return {static_cast<Kind>(text[0] - '0'), text.substr(2)};
}

}  // namespace tailor::fuzz
