#include "files_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>

#include "program.h"

namespace tailor::fuzz {
namespace {

void confine(std::uint64_t memory) {
  const int nowhere = open("/dev/null", O_RDWR);
  dup2(nowhere, STDERR_FILENO);  // torch's warnings
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t room = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) + memory;
  const rlimit space{room, room}, none{0, 0};
  setrlimit(RLIMIT_AS, &space);
  setrlimit(RLIMIT_CORE, &none);
}

void send(int out, std::string text) {
  while (!text.empty()) {
    const ssize_t put = ::write(out, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) _exit(1);
    text.erase(0, static_cast<std::size_t>(put));
  }
}

// One worker, and what it has said.
class Worker {
 public:
  Worker(std::uint64_t begin, std::uint64_t end, const Limits& limits,
         const std::function<Finding(std::uint64_t)>& work) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      confine(limits.memory);
      for (std::uint64_t i = begin; i < end; ++i) {
        Finding finding = work(i);
        std::replace(finding.message.begin(), finding.message.end(), '\n', ' ');
        std::replace(finding.message.begin(), finding.message.end(), '\t', ' ');
        send(ends[1], finding.outcome + '\t' + std::to_string(finding.peak) + '\t' + finding.message + '\n');
      }
      _exit(0);
    }
    close(ends[1]);
    in_ = ends[0];
    if (process_ < 0) throw std::runtime_error("no process");
  }
  ~Worker() {
    close(in_);
    if (process_ > 0) end();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The next finding; how the worker ended, where there is none.
  Finding next(unsigned seconds) {
    const Clock clock;
    for (;;) {
      if (const auto line = said_.find('\n'); line != std::string::npos) {
        const auto first = said_.find('\t'), second = said_.find('\t', first + 1);
        Finding finding{said_.substr(0, first), said_.substr(second + 1, line - second - 1),
                        std::strtoull(said_.c_str() + first + 1, nullptr, 10)};
        said_.erase(0, line + 1);
        return finding;
      }
      const double left = seconds - clock.seconds();
      pollfd waiting{in_, POLLIN, 0};
      const int ready = left > 0 ? poll(&waiting, 1, static_cast<int>(1000 * left) + 1) : 0;
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) return {"FAILED", "it did not end within " + std::to_string(seconds) + " seconds", 0};
      char buffer[65536];
      const ssize_t got = read(in_, buffer, sizeof buffer);
      if (got > 0) {
        said_.append(buffer, static_cast<std::size_t>(got));
        continue;
      }
      const int status = end();
      return {"FAILED",
              WIFSIGNALED(status) ? std::string("the command crashed: ") + strsignal(WTERMSIG(status))
                                  : "the command ended without an answer",
              0};
    }
  }

 private:
  int end() {
    int status = 0;
    kill(process_, SIGKILL);  // no effect on one that has ended
    while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = 0;
    return status;
  }

  pid_t process_ = 0;
  int in_ = -1;
  std::string said_;
};

}  // namespace

void serve(std::uint64_t begin, std::uint64_t end, const Limits& limits,
           const std::function<Finding(std::uint64_t)>& work,
           const std::function<bool(std::uint64_t, const Finding&)>& found) {
  while (begin < end) {
    const std::uint64_t until = std::min(end, begin + limits.batch);
    Worker worker(begin, until, limits, work);
    while (begin < until) {
      const Finding finding = worker.next(limits.seconds);
      if (!found(begin++, finding)) return;
      if (finding.failed()) break;  // a new worker, whatever state this one is in
    }
  }
}

}  // namespace tailor::fuzz
