#include "tools/save.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "files.h"
#include "tools/same_module.h"

namespace {
std::vector<std::string> calls;      // those to fsync and rename, with what was synced
std::vector<int> signals_at_rename;  // that arrive after one
}  // namespace

// Found before the C library's, whose only effect that a test could see is what is left after a power cut. In
// its headers the parameters have reserved names.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
extern "C" int fsync(int descriptor) {
  struct stat status {};
  fstat(descriptor, &status);
  calls.push_back(S_ISDIR(status.st_mode) ? "sync folder" : "sync " + std::to_string(status.st_size));
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  calls.emplace_back("rename");
  const auto result = static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
  for (const int each : signals_at_rename) raise(each);
  return result;
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

namespace tailor::tool {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

std::string refused(const std::string& path) {
  const std::string message = failure_of(Exit::not_written, [&] { StagedFile file(path); });
  EXPECT_TRUE(message.starts_with(path + ": ")) << message;
  return message;
}

// What `work` returns as another user, or the failure that ends it. The folder that it works in has to be open to him.
std::string as_user(uid_t user, const std::vector<gid_t>& groups, const std::function<std::string()>& work) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::string said = "cannot become another user";
    if (setgroups(groups.size(), groups.data()) == 0 && setgid(user) == 0 && setuid(user) == 0) {
      try {
        said = work();
      } catch (const std::exception& error) {
        said = error.what();
      }
    }
    _exit(write(ends[1], said.data(), said.size()) < 0 ? 1 : 0);
  }
  close(ends[1]);
  char said[4096];
  const ssize_t size = read(ends[0], said, sizeof said);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return {said, static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

void write_text(const std::string& path, const std::string& text) {
  StagedFile file(path);
  file.write(text.data(), text.size());
  file.sync();
  commit({&file});
}

class Save : public testing::Test {
 protected:
  struct stat status_of(const std::string& path) const {
    struct stat status {};
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    return status;
  }

  mode_t mode_of(const std::string& path) const { return status_of(path).st_mode & 07777; }

  Folder folder;
  const std::string path = folder / "model.pt";
  const torch::jit::Module module = example_module();
};

TEST_F(Save, WritesWhatLoads) {
  save_as(path, module);
  const ModelFile file(path);
  EXPECT_EQ(difference(module, file.load(Place::cpu)), std::nullopt);
  EXPECT_EQ(file.extra_files().at("note.txt"), "hello");
  EXPECT_EQ(folder.names(), Names{"model.pt"});
  const mode_t mask = umask(0);
  umask(mask);
  EXPECT_EQ(mode_of(path), 0666 & ~mask);
}

TEST_F(Save, ReplacesAFileAndKeepsItsPermissions) {
  put(path, std::string("old"));
  ASSERT_EQ(chmod(path.c_str(), 06750), 0);
  save_as(path, module);
  EXPECT_EQ(mode_of(path), 0750u);
  EXPECT_NO_THROW(ModelFile{path});
}

TEST_F(Save, ReplacesWhatALinkLeadsTo) {
  fs::create_directory(folder / "there");
  put(folder / "there/target.pt", std::string("old"));
  fs::create_symlink("there/target.pt", folder / "middle");
  fs::create_symlink("middle", path);
  save_as(path, module);
  EXPECT_TRUE(fs::is_symlink(path));
  EXPECT_FALSE(fs::is_symlink(folder / "there/target.pt"));
  EXPECT_NO_THROW(ModelFile(folder / "there/target.pt"));
  EXPECT_EQ(folder.names(), (Names{"middle", "model.pt", "there"}));

  fs::create_symlink("there/new.pt", folder / "dangling");
  save_as(folder / "dangling", module);
  EXPECT_NO_THROW(ModelFile(folder / "there/new.pt"));
}

TEST_F(Save, RefusesWhatIsNoFile) {
  fs::create_directory(path);
  EXPECT_SAYS(refused(path), "is a folder");
  EXPECT_SAYS(refused(path + "/"), "names a folder");
  // A device of the test's own: if this ever failed on the machine's, it would replace that.
  if (mknod((folder / "device").c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0) {
    EXPECT_SAYS(refused(folder / "device"), "not a regular file");
    unlink((folder / "device").c_str());
  }
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_SAYS(refused(folder / "pipe"), "not a regular file");
  fs::create_symlink("pipe", folder / "link");
  EXPECT_SAYS(refused(folder / "link"), "not a regular file");
  fs::create_symlink("round", folder / "round");
  EXPECT_SAYS(refused(folder / "round"), "too many symbolic links");
  EXPECT_SAYS(refused(folder / "nowhere/model.pt"), "No such file");
  EXPECT_SAYS(refused(folder / "pipe/fused.pt"), "pipe is no folder");
  EXPECT_EQ(folder.names(), (Names{"link", "model.pt", "pipe", "round"}));
}

TEST_F(Save, RefusesAFolderThatIsReadOnly) {
  ASSERT_EQ(chmod((folder / ".").c_str(), 0555), 0);
  const auto ask = [&] { return refused(path); };
  EXPECT_SAYS(geteuid() == 0 ? as_user(1002, {}, ask) : ask(),
              "its folder: Permission denied");  // root may write anywhere
  ASSERT_EQ(chmod((folder / ".").c_str(), 0700), 0);
}

// rename() would fail on these, and by then another file would be in place.
TEST_F(Save, RefusesWhatCannotBeReplaced) {
  if (geteuid() != 0) GTEST_SKIP() << "only root has another user's file";
  put(path, std::string("old"));
  ASSERT_EQ(chmod((folder / ".").c_str(), 01777), 0);
  const auto ask = [&] {
    require_writable(path);
    return std::string("writable");
  };
  EXPECT_SAYS(as_user(1002, {}, ask), "its folder is sticky");
  ASSERT_EQ(chown(path.c_str(), 1002, 1002), 0);
  EXPECT_EQ(as_user(1002, {}, ask), "writable");  // it is his
  EXPECT_EQ(ask(), "writable");                   // and root may

  put(folder / "other", std::string("other"));
  if (mount((folder / "other").c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    GTEST_SKIP() << "cannot mount a file here";
  }
  EXPECT_SAYS(refused(path), "mount point");
  EXPECT_EQ(umount(path.c_str()), 0);
}

TEST_F(Save, RefusesWhatStandsForAnOpenFile) {
  put(path, std::string("old"));
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_SAYS(refused("/proc/self/fd/" + std::to_string(descriptor)), "stands for an open file");
  close(descriptor);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_SAYS(refused("/dev/fd/" + std::to_string(ends[1])), "stands for an open file");
  fs::create_symlink("/proc/self/fd/" + std::to_string(ends[1]), folder / "link");
  EXPECT_SAYS(refused(folder / "link"), "stands for an open file");
  close(ends[0]);
  close(ends[1]);
}

TEST_F(Save, WritesInAFolderThatCannotBeRead) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become a user for whom this counts";
  ASSERT_EQ(chmod((folder / ".").c_str(), 0333), 0);
  EXPECT_EQ(as_user(1002, {},
                    [&] {
                      write_text(path, "new");
                      return std::string("written");
                    }),
            "written");
  ASSERT_EQ(chmod((folder / ".").c_str(), 0700), 0);
  EXPECT_EQ(get(path), data_of("new"));
}

// Only root may keep the owner; the group keeps who is in it, and who is not gives it no more than it had.
TEST_F(Save, KeepsTheGroup) {
  if (geteuid() != 0) GTEST_SKIP() << "only root has another user's file";
  ASSERT_EQ(chmod((folder / ".").c_str(), 0777), 0);
  const auto replace = [&](mode_t mode, const std::vector<gid_t>& groups) {
    put(path, std::string("old"));
    EXPECT_EQ(chown(path.c_str(), 1001, 1234), 0);
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_EQ(as_user(1002, groups,
                      [&] {
                        write_text(path, "new");
                        return std::string();
                      }),
              "");
    EXPECT_EQ(get(path), data_of("new"));
    EXPECT_EQ(status_of(path).st_uid, 1002u);
    EXPECT_EQ(status_of(path).st_gid, groups.empty() ? 1002u : 1234u);
    return mode_of(path);
  };
  EXPECT_EQ(replace(0660, {1234}), 0660u);
  EXPECT_EQ(replace(04754, {1234}), 0754u);
  EXPECT_EQ(replace(0660, {}), 0600u);
  EXPECT_EQ(replace(0664, {}), 0644u);
  EXPECT_EQ(replace(0604, {}), 0600u);
}

TEST_F(Save, KnowsAFileByWhateverName) {
  fs::create_directory(folder / "there");
  put(path, std::string("old"));
  fs::create_symlink("model.pt", folder / "link");
  fs::create_symlink("new.pt", folder / "dangling");
  fs::create_symlink("round", folder / "round");
  EXPECT_TRUE(is_same_file(path, folder / "./model.pt"));
  EXPECT_TRUE(is_same_file(path, folder / "there/../model.pt"));
  EXPECT_TRUE(is_same_file(path, folder / "link"));
  EXPECT_TRUE(is_same_file(folder / "new.pt", folder / "there/../new.pt"));
  EXPECT_TRUE(is_same_file(folder / "new.pt", folder / "dangling"));
  EXPECT_FALSE(is_same_file(folder / "new.pt", folder / "there/new.pt"));
  EXPECT_FALSE(is_same_file(folder / "new.pt", path));
  EXPECT_FALSE(is_same_file(folder / "round", folder / "nowhere/new.pt"));
}

TEST_F(Save, SyncsTheFileThenItsNewName) {
  calls.clear();
  save_as(path, module);
  EXPECT_EQ(calls, (Names{"sync " + std::to_string(get(path).size()), "rename", "sync folder"}));
}

TEST_F(Save, TakesTheLongestName) {
  const std::string longest = folder / std::string(255, 'x');
  save_as(longest, module);
  EXPECT_NO_THROW(ModelFile{longest});
}

TEST_F(Save, LeavesNothingWhenNotCommitted) {
  put(path, std::string("old"));
  {
    StagedFile file(path);
    save(module, {}, Place::cpu, file);
    EXPECT_EQ(folder.names().size(), 2u);
    EXPECT_SAYS(file.temporary(), "model.pt.tailor-tmp-");
  }
  EXPECT_EQ(folder.names(), Names{"model.pt"});
  EXPECT_EQ(get(path), data_of("old"));
}

// Disk full: the limit on file sizes fails write() in the same way, first short and then not at all.
TEST_F(Save, LeavesNothingWhenTheDiskIsFull) {
  std::signal(SIGXFSZ, SIG_IGN);
  const std::size_t whole = saved(module).size();
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  for (std::size_t room = 0; room < whole; room += whole / 7) {
    put(path, std::string("old"));
    const rlimit small{room, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    const std::string message = failure_of(Exit::not_written, [&] { save_as(path, module); });
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_SAYS(message, "model.pt: cannot be written: File too large");
    EXPECT_EQ(folder.names(), Names{"model.pt"});
    EXPECT_EQ(get(path), data_of("old"));
  }
}

// A module that torch does not read back as it wrote it: each time it is loaded it counts one further.
TEST_F(Save, NoticesWhatIsReadBackWrong) {
  put(folder / "counting.pt", saved_with_setstate("    self.state = state + 1\n"));
  const torch::jit::Module counting = ModelFile(folder / "counting.pt").load(Place::cpu);
  const auto attempt = [&] {
    StagedFile file(path);
    save(counting, {}, Place::cpu, file);
  };
  EXPECT_SAYS(failure_of(Exit::not_written, attempt), "what was read back differs: module.state has another value");
  EXPECT_EQ(folder.names(), Names{"counting.pt"});
}

TEST_F(Save, PutsAllFilesInPlaceOrNone) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, SIG_DFL);
    remove_staged_files_on_signals();
    StagedFile file(path), report(folder / "report.json");
    signals_at_rename = {SIGTERM, SIGINT};
    commit({&report, &file});
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(folder.names(), (Names{"model.pt", "report.json"}));
}

}  // namespace
}  // namespace tailor::tool
