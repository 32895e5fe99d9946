#include "staged_file.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
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

// From before a temporary file has a name in the folder until its slot is filled, a signal would miss it.
std::atomic<bool> making{false}, ending{false};

// The thread that makes a file does not handle signals meanwhile; another one that does waits for it.
class Making {
 public:
  Making() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
    making.store(true);
    while (ending.load()) {  // the handler may have looked already: nothing new from here on
      making.store(false);
      pause();
    }
  }
  ~Making() {
    making.store(false);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;

 private:
  sigset_t before_{};
};

void remove_and_end(int signal) {
  ending.store(true);
  while (making.load()) poll(nullptr, 0, 1);
  for (Slot& slot : slots) {
    if (slot.used.load()) unlink(slot.path);
  }
  raise(signal);  // SA_RESETHAND: with its usual effect, once this handler returns
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

// Where a symbolic link leads; nothing if the path is none.
std::optional<std::string> link_at(const std::string& path) {
  char text[PATH_MAX];
  const ssize_t size = readlink(path.c_str(), text, sizeof text);
  if (size < 0) return std::nullopt;
  return std::string(text, static_cast<std::size_t>(size));
}

// What a path means once its symbolic links are followed, also where the last one leads to nothing yet.
std::string follow(const std::string& path) {
  constexpr int most_links = 40;
  std::string target = path;
  for (int links = 0; const auto link = link_at(target); ++links) {
    if (links == most_links) throw Failure(Exit::not_written, path + ": cannot be written: too many symbolic links");
    target = link->starts_with('/') ? *link : folder_of(target) + '/' + *link;
  }
  return target;
}

}  // namespace

void require_writable(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw Failure(Exit::not_written, path + ": cannot be written: " + why);
  };
  const std::string target = follow(path);
  struct stat status {};
  if (name_of(target).empty()) refuse("it names a folder; give the name of a file");
  if (stat(target.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) refuse("it is a folder; give the name of a file in it");
    if (!S_ISREG(status.st_mode)) refuse("it exists and is not a regular file; give another name");
  }
  if (access(folder_of(target).c_str(), W_OK | X_OK) != 0) refuse("its folder: " + system_error());
}

StagedFile::StagedFile(const std::string& path) : path_(path), target_(follow(path)) {
  require_writable(path);
  struct stat old {};
  const bool replaces = stat(target_.c_str(), &old) == 0;
  // What cannot be looked at may have permissions that the new file would have to have.
  if (!replaces && errno != ENOENT) fail(system_error());
  constexpr const char* suffix = ".tailor-tmp-XXXXXX";
  // A long name leaves no room for the suffix, so it gives up as much of its own end.
  const std::string name = name_of(target_).substr(0, NAME_MAX - std::strlen(suffix));
  temporary_ = folder_of(target_) + '/' + name + suffix;
  make();

  const mode_t mask = umask(0);
  umask(mask);
  if (!replaces) {
    fchmod(descriptor_, 0666 & ~mask);
  } else {
    // The owner first: changing it takes set-user-id bits away. Only root may, and nobody else needs to.
    if (fchown(descriptor_, old.st_uid, old.st_gid) != 0) errno = 0;
    fchmod(descriptor_, old.st_mode & 07777);
  }
}

void StagedFile::make() {
  const Making making_now;
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

void StagedFile::fail(const std::string& what) const {
  throw Failure(Exit::not_written, path_ + ": cannot be written: " + what);
}

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

void StagedFile::commit() {
  if (rename(temporary_.c_str(), target_.c_str()) != 0) fail(system_error());
  slots[slot_].used.store(false);
  const std::string folder = folder_of(target_);
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // The new file is in place; that it is there after a power cut is what cannot be promised without this.
  const bool synced = descriptor >= 0 && fsync(descriptor) == 0;
  const std::string why = synced ? "" : system_error();
  if (descriptor >= 0) close(descriptor);
  if (!synced) fail("it is complete, but its folder could not be synced: " + why);
}

void remove_staged_files_on_signals() {
  struct sigaction action {};
  action.sa_handler = remove_and_end;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXCPU}) {
    struct sigaction old {};
    sigaction(signal, nullptr, &old);
    if (old.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // nohup stays in force
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace tailor::tool
