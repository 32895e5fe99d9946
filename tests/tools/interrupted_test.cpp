// Signals that end the program while files are being written.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "files.h"
#include "tools/staged_file.h"

namespace tailor::tool {
namespace {

using Names = std::vector<std::string>;

class Interrupted : public testing::Test {
 protected:
  Folder folder;
  const std::string path = folder / "model.pt";
};

TEST_F(Interrupted, LeavesNothingAfterASignal) {
  for (const int signal :
       {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGRTMIN, SIGRTMAX}) {
    put(path, std::string("old"));
    const pid_t child = fork();
    if (child == 0) {
      std::signal(signal, SIG_DFL);  // nohup has it ignored, and then it stays so
      remove_staged_files_on_signals();
      StagedFile file(path), report(folder / "report.json");
      file.write("half", 4);
      raise(signal);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal);  // and the shell sees what ended it
    EXPECT_EQ(folder.names(), Names{"model.pt"});
    EXPECT_EQ(get(path), data_of("old"));
  }
}

// Whoever sends one may send it twice: `timeout` does, to the process and to its group. In the kernel the first one may not have come to
// the handler when the second is there.
TEST_F(Interrupted, KeepsTheHandlerUntilItIsDone) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGTERM, SIG_DFL);
    remove_staged_files_on_signals();
    struct sigaction action {};
    sigaction(SIGTERM, nullptr, &action);
    _exit((action.sa_flags & static_cast<int>(SA_RESETHAND)) == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// The first process of a container, which the kernel spares a signal's usual effect.
TEST_F(Interrupted, EndsAfterASignalAsTheFirstProcess) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(77);
    const pid_t first = fork();
    if (first == 0) {
      std::signal(SIGTERM, SIG_DFL);
      remove_staged_files_on_signals();
      StagedFile file(path);
      raise(SIGTERM);
      _exit(0);
    }
    int status = 0;
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "cannot begin a namespace of processes here";
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  EXPECT_EQ(folder.names(), Names{});
}

// Between a file's appearance and its entry among those to remove lie microseconds: many files, many signals.
TEST_F(Interrupted, LeavesNothingWhenASignalMeetsAFileBeingMade) {
  put(path, std::string("old"));
  for (int round = 0; round < 200; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      std::signal(SIGTERM, SIG_DFL);
      remove_staged_files_on_signals();
      const auto make_files = [&] {
        if (write(ends[1], "1", 1) != 1) _exit(1);
        for (;;) const StagedFile file(path);
      };
      if (round % 2 == 0) make_files();
      std::thread(make_files).detach();  // the thread that takes the signal is another one
      for (;;) pause();
    }
    char begun;
    EXPECT_EQ(read(ends[0], &begun, 1), 1);
    usleep(static_cast<useconds_t>(7 * round % 400));
    kill(child, SIGTERM);
    int status = 0;
    waitpid(child, &status, 0);
    close(ends[0]);
    close(ends[1]);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    ASSERT_EQ(folder.names(), Names{"model.pt"}) << "round " << round;
  }
}

}  // namespace
}  // namespace tailor::tool
