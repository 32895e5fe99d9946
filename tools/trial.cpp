#include "trial.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>

#include "failure.h"

namespace tailor::tool {
namespace {

constexpr char success = 'y', failure = 'n';
constexpr const char* greedy = "loading it needs more memory than a file of its size should";
constexpr const char* opens = "its code opens a file while it is loaded";
constexpr const char* limited = "there is no memory to load it: this process may have too little (ulimit -v)";

// Whether it may have as much.
bool limit(int resource, rlim_t value) {
  rlimit now{};
  getrlimit(static_cast<__rlimit_resource_t>(resource), &now);
  const bool allowed = value <= now.rlim_max;
  now.rlim_cur = std::min(value, now.rlim_max);
  setrlimit(static_cast<__rlimit_resource_t>(resource), &now);
  return allowed;
}

// torch's libraries alone map gigabytes, so a limit on address space has to begin from what is mapped.
std::uint64_t mapped_now() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

// What it then means that there is no memory.
const char* confine(const Limits& limits) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU}) std::signal(signal, SIG_DFL);
  const int nowhere = open("/dev/null", O_RDWR);
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, standard);
  limit(RLIMIT_CORE, 0);
  prctl(PR_SET_DUMPABLE, 0);  // no core through a pipe either
  limit(RLIMIT_CPU, limits.seconds);
  const std::uint64_t mapped = mapped_now();
  const bool is_allowed = mapped == 0 || limit(RLIMIT_AS, mapped + limits.memory);
  // Half of the stack: what nests just deeply enough here leaves room for the passes in the parent.
  rlimit stack{};
  if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur != RLIM_INFINITY) limit(RLIMIT_STACK, stack.rlim_cur / 2);
  // Code in a model may run while it loads, and has operators that empty files, write them and map them. What is open stays open.
  limit(RLIMIT_NOFILE, 0);
  return is_allowed ? greedy : limited;
}

[[noreturn]] void child(const std::function<void()>& work, const Limits& limits, int out, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above
  const char* const no_memory = confine(limits);
  std::string answer(1, success);
  try {
    work();
  } catch (const std::bad_alloc&) {
    answer = failure + std::string(no_memory);
  } catch (const std::exception& error) {
    answer = failure + one_line(error);
    if (answer.find("can't allocate memory") != std::string::npos) answer = failure + std::string(no_memory);
    if (answer.find(strerror(EMFILE)) != std::string::npos) answer = failure + std::string(opens);
  } catch (...) {
    answer = failure + std::string("torch threw something unknown");
  }
  const ssize_t written = write(out, answer.data(), answer.size());  // fits the pipe: one_line is short
  _exit(written == static_cast<ssize_t>(answer.size()) ? 0 : 1);
}

// What the child has written until it closed the pipe; nothing if the time is over.
std::optional<std::string> listen(int in, std::chrono::steady_clock::time_point deadline) {
  std::string answer;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{in, POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return std::nullopt;
    char buffer[4096];
    const ssize_t got = read(in, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return answer;
    answer.append(buffer, static_cast<std::size_t>(got));
  }
}

std::string died(int status, const Limits& limits) {
  if (!WIFSIGNALED(status)) return "loading it ended torch";
  switch (WTERMSIG(status)) {
    case SIGXCPU:
      return "loading it did not end within " + std::to_string(limits.seconds) + " seconds";
    default:
      return std::string("loading it crashes torch (") + strsignal(WTERMSIG(status)) + ")";
  }
}

}  // namespace

std::optional<std::string> trial(const std::function<void()>& work, const Limits& limits) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Failure(Exit::unreadable, "cannot make a pipe: " + system_error());
  std::fflush(nullptr);  // or the child would have a second copy of what is buffered
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process == 0) child(work, limits, ends[1], parent);
  close(ends[1]);
  if (process < 0) {
    close(ends[0]);
    throw Failure(Exit::unreadable, "cannot start a process to load it in: " + system_error());
  }
  const unsigned patience = 4 * limits.seconds;
  const auto answer = listen(ends[0], std::chrono::steady_clock::now() + std::chrono::seconds(patience));
  close(ends[0]);
  if (!answer) kill(process, SIGKILL);
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (!answer) return "loading it did not end within " + std::to_string(patience) + " seconds";
  if (answer->empty()) return died(status, limits);
  if (answer->front() == success) return std::nullopt;
  return answer->substr(1);
}

}  // namespace tailor::tool
