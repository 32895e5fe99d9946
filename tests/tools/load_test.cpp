#include "tools/load.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "files.h"

namespace tailor::tool {
namespace {

const Limits short_limits{.memory = std::uint64_t{1} << 30, .seconds = 2};

class Load : public testing::Test {
 protected:
  std::string refused(const Data& data) {
    put(path, data);
    const std::string message = failure_of(Exit::unreadable, [&] { ModelFile(path, {}, Trial::yes, short_limits); });
    EXPECT_TRUE(message.starts_with(path + ": ")) << message;
    return message;
  }

  Folder folder;
  const std::string path = folder / "model.pt";
};

TEST_F(Load, GivesAModuleOfItsOwnEachTime) {
  put(path, saved(example_module(), {{"note.txt", "hello"}, {"sub/b.bin", std::string("\0\1", 2)}}));
  const ModelFile file(path);
  torch::jit::Module first = file.load(Place::as_saved), second = file.load(Place::cpu);
  EXPECT_TRUE(at::equal(first.attr("weight").toTensor(), at::arange(6, at::kFloat).reshape({2, 3})));
  EXPECT_EQ(first.attr("half").toTensor().scalar_type(), at::kHalf);
  EXPECT_NE(first.get_method("forward").graph(), second.get_method("forward").graph());
  EXPECT_FALSE(first.attr("weight").toTensor().is_alias_of(second.attr("weight").toTensor()));
  EXPECT_EQ(file.extra_files().at("note.txt"), "hello");
  EXPECT_EQ(file.extra_files().at("sub/b.bin"), std::string("\0\1", 2));
  EXPECT_TRUE(file.foreign_records().empty());
}

TEST_F(Load, BlamesNoDevicesForWhatNoneCouldLoad) {
  put(path, with_record(saved(example_module()), "code/__torch__.py", [](std::string code) { return code + "def"; }));
  const ModelFile file(path, {}, Trial::no);
  const std::string said = failure_of(Exit::unreadable, [&] { file.load(Place::as_saved); });
  EXPECT_SAYS(said, "cannot be loaded: ");
  EXPECT_EQ(said.find("device"), std::string::npos) << said;
}

TEST_F(Load, NamesForeignRecords) {
  Data data = with_record(saved(example_module()), "byteorder", [](std::string text) { return text; });
  std::string text(data.begin(), data.end());
  for (std::size_t at; (at = text.find("byteorder")) != std::string::npos;) text.replace(at, 9, "leftovers");
  put(path, text);
  EXPECT_EQ(ModelFile(path).foreign_records(), std::vector<std::string>{"leftovers"});
}

TEST_F(Load, RefusesWhatIsNoFile) {
  const auto message = [&] { return failure_of(Exit::unreadable, [&] { ModelFile file(path); }); };
  EXPECT_SAYS(message(), "No such file");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_SAYS(message(), "not a regular file");  // and does not wait for a writer
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_SAYS(message(), "not a regular file");
}

TEST_F(Load, NoticesAFileThatChanges) {
  put(path, saved(example_module()));
  const ModelFile file(path);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the file system's clock ticks
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(100).put('x');
  EXPECT_SAYS(failure_of(Exit::unreadable, [&] { file.load(Place::cpu); }), "changed while it was read");
}

TEST_F(Load, NoticesAFileThatIsReplaced) {
  put(path, saved(example_module()));
  const ModelFile file(path);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  put(folder / "other", std::string("something else"));
  std::filesystem::rename(folder / "other", path);
  EXPECT_SAYS(failure_of(Exit::unreadable, [&] { file.load(Place::cpu); }), "changed while it was read");
}

TEST_F(Load, NamesMissingLibraries) {
  const auto calling = [&](const std::string& op) {
    return refused(with_record(saved(example_module()), "code/__torch__.py", [&](std::string code) {
      return code.replace(code.find("torch.relu("), 11, "ops." + op + "(");
    }));
  };
  EXPECT_SAYS(calling("foo.bar"), "needs the library that defines 'foo::bar': name its file with --library");
  EXPECT_SAYS(calling("aten.mull"), "'aten::mull', which this torch does not have");
  EXPECT_SAYS(calling("tailor.linear_sew"), "fused by another version of Tailor: 'tailor::linear_sew'");
}

// Nothing is wrong with the file then.
TEST_F(Load, SaysWhereThisProcessMayHaveTooLittle) {
  put(path, saved_with_setstate("    self.state = torch.zeros([1000000, 1000000]).numel()\n"));
  const pid_t child = fork();
  if (child == 0) {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) +
                        (rlim_t{1} << 29);  // of the gigabyte that loading may have
    const rlimit all{most, most};
    setrlimit(RLIMIT_AS, &all);
    try {
      ModelFile(path, {}, Trial::yes, short_limits);
    } catch (const Failure& failure) {
      _exit(std::string(failure.what()).find("this process may have too little (ulimit -v)") == std::string::npos ? 1
                                                                                                                  : 0);
    }
    _exit(2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Load, SurvivesCodeThatRunsWhileLoading) {
  EXPECT_SAYS(refused(saved_with_setstate("    while True:\n        state += 1\n")), "did not end within 2 seconds");
  EXPECT_SAYS(refused(saved_with_setstate("    self.state = torch.zeros([1000000, 1000000]).numel()\n")),
              "more memory than");
  put(folder / "precious", std::string("of somebody's"));
  const std::string precious = "'" + (folder / "precious") + "'";
  EXPECT_SAYS(refused(saved_with_setstate("    torch.save([1], " + precious + ")\n")), "its code writes a file");
  EXPECT_SAYS(refused(saved_with_setstate("    self.state = int(torch.from_file(" + precious +
                                          ", True, 3, dtype=0).fill_(1).sum())\n")),
              "its code opens a file");
  EXPECT_EQ(get(folder / "precious"), data_of("of somebody's"));
  EXPECT_SAYS(refused(saved_with_setstate("    assert False, 'stop it'\n")), "stop it");
  put(path, saved_with_setstate("    self.state = state + 1\n"));
  EXPECT_EQ(ModelFile(path).load(Place::cpu).attr("state").toInt(), 2);
}

// What the code did not do in the child it could do in the next load: it is what it says that counts.
TEST_F(Load, RefusesCodeThatCouldWriteTheNextTime) {
  const std::string save = "torch.save([1], '" + (folder / "written") + "')\n";
  const auto calling = [&](const std::string& helper, const std::string& call) {
    torch::jit::Module module("Eager");
    module.register_attribute("state", c10::IntType::get(), 1);
    module.define("def helper(self) -> int:\n" + helper + "    return 1\n");
    module.define("def __getstate__(self) -> int:\n    return self.state\n");
    module.define("def __setstate__(self, state: int) -> None:\n    self.state = state\n" + call);
    return saved(module);
  };
  const std::string rarely = "    if self.state > 5:\n        ";
  EXPECT_SAYS(refused(calling("", rarely + save)), "its code writes a file while it is loaded");
  EXPECT_SAYS(refused(calling("", rarely + "self.state = int(torch.from_file('/', True, 3).sum())\n")),
              "its code writes a file");
  EXPECT_SAYS(refused(calling(rarely + save, "    self.helper()\n")), "its code writes a file");
  EXPECT_SAYS(refused(with_record(calling("", "    print(state)\n"), "code/__torch__.py",
                                  [](std::string code) {
                                    return code.replace(code.find("print(state)"), 12,
                                                        "torch.wait(fork(ops.aten.save, state, \"/\"))");
                                  })),
              "its code writes a file");
  put(path, calling("    self.state = 2\n", "    self.helper()\n"));
  ModelFile(path, {}, Trial::yes, short_limits);
}

TEST_F(Load, TakesCodeThatWritesWhenItIsCalled) {
  torch::jit::Module module("Lazy");
  module.define("def forward(self, x):\n    torch.save(x, '" + (folder / "written") + "')\n    return x\n");
  put(path, saved(module));
  ModelFile(path, {}, Trial::yes, short_limits);
}

TEST_F(Load, SurvivesCodeThatNestsTooDeeply) {
  const std::string brackets = std::string(200000, '(') + "x" + std::string(200000, ')');
  EXPECT_SAYS(refused(with_record(saved(example_module()), "code/__torch__.py",
                                  [&](std::string code) { return code.replace(code.find("x, weight"), 1, brackets); })),
              "cannot be loaded");
}

TEST_F(Load, SurvivesDamagedPickles) {
  const Data whole = saved(example_module());
  std::mt19937 random(1);
  int loaded = 0;
  for (int round = 0; round < 60; ++round) {
    put(path, with_record(whole, random() % 2 ? "data.pkl" : "constants.pkl", [&](std::string pickle) {
          pickle[random() % pickle.size()] = static_cast<char>(random());
          return pickle;
        }));
    try {
      ModelFile(path, {}, Trial::yes, short_limits).load(Place::cpu);
      ++loaded;
    } catch (const Failure& failure) {
      ASSERT_EQ(failure.exit, Exit::unreadable);
      ASSERT_EQ(std::string(failure.what()).find('\n'), std::string::npos) << failure.what();
    }
  }
  EXPECT_LT(loaded, 60);
}

TEST_F(Load, SaysWhyALibraryIsNone) {
  put(path, std::string("text"));
  EXPECT_SAYS(failure_of(Exit::unreadable, [&] { load_library(path); }), "cannot be loaded as a library");
}

TEST(TrialTest, SaysHowItEnded) {
  EXPECT_FALSE(trial([] {}, short_limits));
  EXPECT_EQ(trial([] { throw std::runtime_error("first line\nsecond"); }, short_limits).value(), "first line");
  EXPECT_SAYS(trial([] { std::abort(); }, short_limits).value(), "crashes torch (Aborted)");
  const auto crash = [] {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer has a handler, which exits
    std::raise(SIGSEGV);
  };
  EXPECT_SAYS(trial(crash, short_limits).value(), "crashes torch (Segmentation fault)");
  EXPECT_SAYS(trial([] { _exit(0); }, short_limits).value(), "ended torch");
  EXPECT_SAYS(trial([] { throw 1; }, short_limits).value(), "unknown");
#if !defined(__SANITIZE_ADDRESS__)  // its operator new ends the program instead of throwing
  EXPECT_SAYS(trial([] { const std::vector<char> greedy(std::size_t{2} << 30); }, short_limits).value(), "more memory");
#endif
}

TEST(TrialTest, OpensNothing) {
  const auto open_it = [] {
    if (open("/dev/null", O_RDONLY) >= 0) throw std::runtime_error("it is open");
    throw std::runtime_error(std::string("no: ") + std::strerror(errno));
  };
  EXPECT_EQ(trial(open_it, short_limits).value(), "its code opens a file while it is loaded");
}

TEST(TrialTest, EndsWhatWaitsForever) {
  const auto start = std::chrono::steady_clock::now();
  const Limits limits{.memory = std::uint64_t{1} << 30, .seconds = 1};
  EXPECT_SAYS(trial([] { std::this_thread::sleep_for(std::chrono::hours(1)); }, limits).value(),
              "did not end within 4");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

}  // namespace
}  // namespace tailor::tool
