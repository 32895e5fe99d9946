#include "staged_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>

#include "failure.h"

namespace tailor::tool {
namespace {

// The temporary files of this process, where a signal handler can see them. A model, a report and a drawing at most.
struct Slot {
  std::atomic<bool> used{false};
  char path[PATH_MAX]{};
};
std::array<Slot, 8> slots;
static_assert(std::atomic<bool>::is_always_lock_free);

std::atomic<bool> undisturbed{false}, ending{false};

// While one of these lives no signal ends the process: its thread does not handle them, and another one that does waits.
class Undisturbed {
 public:
  Undisturbed() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
    undisturbed.store(true);
    while (ending.load()) {  // the handler may have looked already: nothing new from here on
      undisturbed.store(false);
      pause();
    }
  }
  ~Undisturbed() {
    undisturbed.store(false);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Undisturbed(const Undisturbed&) = delete;
  Undisturbed& operator=(const Undisturbed&) = delete;

 private:
  sigset_t before_{};
};

void remove_and_end(int signal) {
  ending.store(true);
  while (undisturbed.load()) poll(nullptr, 0, 1);
  for (Slot& slot : slots) {
    if (slot.used.load()) unlink(slot.path);
  }
  // With its usual effect, as soon as it is no longer blocked. The handler is not installed with SA_RESETHAND: a second signal may come between
  // that and the first line above.
  std::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  raise(signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  // Which is none on the first process of a container: the kernel spares it what it does not handle.
  _exit(128 + signal);
}

// Fills a free slot; its number.
std::size_t remember(const std::string& path) {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].used.load() || path.size() >= PATH_MAX) continue;
    std::memcpy(slots[i].path, path.c_str(), path.size() + 1);
    slots[i].used.store(true);
    return i;
  }
  throw Failure(Exit::not_written, path + ": cannot be written: its name is too long");
}

// std::filesystem is not to be had here: libtorch.so exports a copy of it, found before the C++ library's, and some
// functions of that jump to address 0 (seen with torch 2.11: remove_all).

std::string folder_of(const std::string& target) {
  const auto slash = target.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : target.substr(0, slash);
}

std::string name_of(const std::string& target) { return target.substr(target.rfind('/') + 1); }

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Failure(Exit::not_written, path + ": cannot be written: " + why);
}

// Where a symbolic link leads; nothing if this is none. One that cannot be read is not taken for none, or it would itself
// be replaced. That its folder is what is wrong require_writable says better.
std::optional<std::string> link_at(const std::string& target, const std::string& path) {
  char text[PATH_MAX];
  const ssize_t size = readlink(target.c_str(), text, sizeof text);
  if (size >= 0) return std::string(text, static_cast<std::size_t>(size));
  if (errno == EINVAL || errno == ENOENT) return std::nullopt;
  const std::string why = system_error();
  if (access(folder_of(target).c_str(), W_OK | X_OK) == 0) refuse(path, why);
  return std::nullopt;
}

// What look like links there are open files: /proc/self/fd/1, to which /dev/stdout leads.
bool is_in_proc(const std::string& path) {
  struct statfs status {};
  return statfs(folder_of(path).c_str(), &status) == 0 && status.f_type == PROC_SUPER_MAGIC;
}

// What a path means once its symbolic links are followed, also where the last one leads to nothing yet.
std::string follow(const std::string& path) {
  constexpr int most_links = 40;
  std::string target = path;
  for (int links = 0; const auto link = link_at(target, path); ++links) {
    if (links == most_links)
      refuse(path, "too many symbolic links follow one another, maybe in a circle; give the name of the file itself");
    if (is_in_proc(target)) refuse(path, "it stands for an open file; give the name of a file");
    target = link->starts_with('/') ? *link : folder_of(target) + '/' + *link;
  }
  return target;
}

// Of statx; none where the file system does not tell.
std::uint64_t attributes_of(const std::string& path) {
  struct statx status {};
  if (statx(AT_FDCWD, path.c_str(), 0, STATX_BASIC_STATS, &status) != 0) return 0;
  return status.stx_attributes & status.stx_attributes_mask;
}

// Why rename() would not put another file in the place of this one; nothing if it would.
std::optional<std::string> why_it_must_stay(const std::string& target, const struct stat& file) {
  struct stat folder {};
  if (stat(folder_of(target).c_str(), &folder) != 0) return "its folder: " + system_error();
  const uid_t user = geteuid();
  const bool sticky = (folder.st_mode & S_ISVTX) != 0;
  if (sticky && user != 0 && user != file.st_uid && user != folder.st_uid)
    return "it belongs to somebody else, and its folder is sticky: only its owner may replace it";
  const std::uint64_t attributes = attributes_of(target);
  // Not told by its device: overlayfs gives a folder and the files in it different ones.
  if ((attributes & STATX_ATTR_MOUNT_ROOT) != 0) return "it is a mount point; give the name of another file";
  if ((attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND)) != 0) return "chattr protects it from changes";
  return std::nullopt;
}

// Two paths with the same identity are one file: an existing one by itself, another by its folder and name.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;
  bool operator==(const Identity&) const = default;
};

std::optional<Identity> identity_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) return Identity{status.st_dev, status.st_ino, {}};
  try {
    const std::string target = follow(path);
    if (stat(folder_of(target).c_str(), &status) == 0) return Identity{status.st_dev, status.st_ino, name_of(target)};
  } catch (const Failure&) {
  }
  return std::nullopt;  // it cannot be written, which require_writable says better
}

// The permissions of a new file whose group could not be made that of the old one. Who was in neither must not gain by
// that the new group is one of his, nor who was in the old one by that he is not in the new.
mode_t without_group(mode_t mode) {
  const mode_t both = (mode >> 3) & mode & 07;
  return (mode & 0700) | both << 3 | both;
}

}  // namespace

void require_writable(const std::string& path) {
  const std::string target = follow(path);
  struct stat status {};
  if (name_of(target).empty()) refuse(path, "it names a folder; give the name of a file");
  const bool exists = stat(target.c_str(), &status) == 0;
  const std::string why = exists || errno == ENOENT ? "" : system_error();
  if (exists) {
    if (S_ISDIR(status.st_mode)) refuse(path, "it is a folder; give the name of a file in it");
    if (!S_ISREG(status.st_mode)) refuse(path, "it exists and is not a regular file; give another name");
  }
  const std::string folder = folder_of(target);
  if (struct stat place{}; stat(folder.c_str(), &place) == 0 && !S_ISDIR(place.st_mode))
    refuse(path, folder + " is no folder; give the name of a file in one");
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    refuse(path, "its folder: " + system_error() + "; name one that is there and that you may write to");
  // What cannot be looked at may have permissions that the new file would have to have.
  if (!why.empty()) refuse(path, why);
  if ((attributes_of(folder) & STATX_ATTR_APPEND) != 0) refuse(path, "its folder: chattr protects what is in it");
  if (!exists) return;
  if (const auto reason = why_it_must_stay(target, status)) refuse(path, *reason);
}

bool is_same_file(const std::string& one, const std::string& other) {
  const auto identity = identity_of(one);
  return one == other || (identity && identity == identity_of(other));
}

bool is_standard_output(const std::string& path) {
  struct stat file {
  }, stream{};
  if (stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) return false;
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
    if (fstat(descriptor, &stream) == 0 && stream.st_dev == file.st_dev && stream.st_ino == file.st_ino) return true;
  }
  return false;
}

StagedFile::StagedFile(const std::string& path) : path_(path), target_(follow(path)) {
  require_writable(path);
  struct stat old {};
  const bool replaces = stat(target_.c_str(), &old) == 0;
  if (!replaces && errno != ENOENT) fail(system_error());
  constexpr const char* suffix = ".tailor-tmp-XXXXXX";
  // A long name leaves no room for the suffix, so it gives up as much of its own end.
  const std::string name = name_of(target_).substr(0, NAME_MAX - std::strlen(suffix));
  temporary_ = folder_of(target_) + '/' + name + suffix;
  make();

  if (replaces) {
    keep_permissions(old);
  } else {
    const mode_t mask = umask(0);
    umask(mask);
    fchmod(descriptor_, 0666 & ~mask);
  }
}

// Only root may give a file to another owner; its group is for anybody to keep who is in it. To run with its owner's rights was
// said of what was there before.
void StagedFile::keep_permissions(const struct stat& old) {
  mode_t mode = old.st_mode & 0777;
  if (fchown(descriptor_, old.st_uid, old.st_gid) != 0) {
    struct stat now {};
    if (fstat(descriptor_, &now) != 0) fail(system_error());
    if (now.st_gid != old.st_gid && fchown(descriptor_, static_cast<uid_t>(-1), old.st_gid) != 0)
      mode = without_group(mode);
  }
  fchmod(descriptor_, mode);
}

void StagedFile::make() {
  // From when it has a name in the folder until its slot is filled, a signal would miss it.
  const Undisturbed meanwhile;
  descriptor_ = mkostemp(temporary_.data(), O_CLOEXEC);
  if (descriptor_ < 0) fail(system_error());
  try {
    slot_ = remember(temporary_);
  } catch (...) {
    close(descriptor_);
    unlink(temporary_.c_str());
    throw;
  }
}

StagedFile::~StagedFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!slots[slot_].used.load()) return;
  unlink(temporary_.c_str());
  slots[slot_].used.store(false);
}

void StagedFile::fail(const std::string& what) const { refuse(path_, what); }

void StagedFile::write(const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t put = ::write(descriptor_, at, size);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail(system_error());
    at += put;
    size -= static_cast<std::size_t>(put);
  }
}

void StagedFile::sync() {
  if (fsync(descriptor_) != 0) fail(system_error());
  posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);  // so that who reads it back reads the disk
  const int closed = close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail(system_error());
}

void StagedFile::rename_to_target() {
  if (rename(temporary_.c_str(), target_.c_str()) != 0) fail(system_error());
  slots[slot_].used.store(false);
}

void StagedFile::sync_folder() const {
  const int descriptor = open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0 && errno == EACCES) return ::sync();  // may be written, not read: then all there is to sync
  // The new file is in place; that it is there after a power cut is what cannot be promised without this.
  const bool synced = descriptor >= 0 && fsync(descriptor) == 0;
  const std::string why = synced ? "" : system_error();
  if (descriptor >= 0) close(descriptor);
  if (!synced) fail("it is complete, but its folder could not be synced: " + why);
}

void commit(const std::vector<StagedFile*>& files) {
  const Undisturbed meanwhile;
  for (StagedFile* file : files) file->rename_to_target();
  for (const StagedFile* file : files) file->sync_folder();
}

void remove_staged_files_on_signals() {
  struct sigaction action {};
  action.sa_handler = remove_and_end;
  // All that end a process, but for those that say that its code is at fault.
  std::vector<int> deadly{SIGINT,  SIGTERM, SIGHUP,    SIGQUIT, SIGPIPE, SIGXCPU, SIGUSR1,
                          SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO,   SIGPWR,  SIGSTKFLT};
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) deadly.push_back(signal);
  for (const int signal : deadly) {
    struct sigaction old {};
    sigaction(signal, nullptr, &old);
    if (old.sa_handler == SIG_DFL) sigaction(signal, &action, nullptr);  // nohup stays in force
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace tailor::tool
