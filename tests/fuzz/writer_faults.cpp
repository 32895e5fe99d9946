#include "writer_faults.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstring>
#include <map>

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the names are the linker's
extern const char __executable_start, etext;
// NOLINTEND(bugprone-reserved-identifier)
}

namespace tailor::fuzz {
namespace {

bool armed = false;
std::uint64_t first = 0, each_of = 1;
std::map<std::string, std::uint64_t> of_kind;
std::uint64_t counted = 0, target = 0;
Fault fault = Fault::none;
int failure = 0;
const char* struck = nullptr;

bool is_ours(const void* caller) { return caller >= &__executable_start && caller < &etext; }

bool may_be_interrupted(const char* call) {
  constexpr std::array<const char*, 5> some = {"write", "read", "pread", "poll", "waitpid"};
  return std::ranges::any_of(some, [&](const char* each) { return std::strcmp(each, call) == 0; });
}

// Whether this call fails, with errno set. `size`, where there is one, may become smaller.
bool fails(const char* call, const void* caller, std::size_t* size = nullptr) {
  if (!armed || !is_ours(caller)) return false;
  const std::uint64_t before = of_kind[call]++;
  const bool counts = before < first || before % each_of == 0;
  const bool now = counts && counted++ == target;
  const char* const from_now_on = fault == Fault::stays ? "unlink" : fault == Fault::for_good ? struck : nullptr;
  const bool again = struck != nullptr && from_now_on != nullptr && std::strcmp(from_now_on, call) == 0;
  if (!now && !again) return false;
  if (now) struck = call;
  switch (fault) {
    case Fault::part:
      if (size != nullptr && *size > 1) *size /= 2;
      return false;
    case Fault::interrupt:
      if (!may_be_interrupted(call)) return false;
      errno = EINTR;
      return true;
    case Fault::kill:
      raise(SIGKILL);
      return false;
    case Fault::none:
      return false;
    default:
      errno = failure;
      return true;
  }
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

void take_calls(std::uint64_t first_of_all, std::uint64_t one_of) {
  first = first_of_all;
  each_of = one_of;
}

void strike(std::uint64_t number, Fault what, int error) {
  counted = 0;
  of_kind.clear();
  target = number;
  fault = what;
  failure = error;
  struck = nullptr;
  armed = true;
}

Struck disarm() {
  armed = false;
  return {struck != nullptr, struck != nullptr ? struck : "", counted};
}

}  // namespace tailor::fuzz

using tailor::fuzz::fails;
using tailor::fuzz::next;

// Found before the C library's, which does the work. In its headers the parameters have reserved names.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
#define TAILOR_CALLER __builtin_return_address(0)

extern "C" {

int open(const char* path, int flags, ...) {
  static auto* const real = next<int(const char*, int, ...)>("open");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return fails("open", TAILOR_CALLER) ? -1 : real(path, flags, mode);
}
int mkostemp(char* pattern, int flags) {
  static auto* const real = next<int(char*, int)>("mkostemp");
  return fails("mkostemp", TAILOR_CALLER) ? -1 : real(pattern, flags);
}
// What the kernel says of close: the descriptor is closed, whatever it returns.
int close(int descriptor) {
  static auto* const real = next<int(int)>("close");
  const bool failed = fails("close", TAILOR_CALLER);
  const int error = errno, result = real(descriptor);
  if (!failed) return result;
  errno = error;
  return -1;
}
ssize_t write(int descriptor, const void* data, size_t size) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  return fails("write", TAILOR_CALLER, &size) ? -1 : real(descriptor, data, size);
}
ssize_t read(int descriptor, void* data, size_t size) {
  static auto* const real = next<ssize_t(int, void*, size_t)>("read");
  return fails("read", TAILOR_CALLER, &size) ? -1 : real(descriptor, data, size);
}
ssize_t pread(int descriptor, void* data, size_t size, off_t offset) {
  static auto* const real = next<ssize_t(int, void*, size_t, off_t)>("pread");
  return fails("pread", TAILOR_CALLER, &size) ? -1 : real(descriptor, data, size, offset);
}
int fsync(int descriptor) {
  static auto* const real = next<int(int)>("fsync");
  return fails("fsync", TAILOR_CALLER) ? -1 : real(descriptor);
}
int rename(const char* from, const char* to) noexcept {
  static auto* const real = next<int(const char*, const char*)>("rename");
  return fails("rename", TAILOR_CALLER) ? -1 : real(from, to);
}
int unlink(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("unlink");
  return fails("unlink", TAILOR_CALLER) ? -1 : real(path);
}
int stat(const char* path, struct stat* status) noexcept {
  static auto* const real = next<int(const char*, struct stat*)>("stat");
  return fails("stat", TAILOR_CALLER) ? -1 : real(path, status);
}
int statx(int folder, const char* path, int flags, unsigned mask, struct statx* status) noexcept {
  static auto* const real = next<int(int, const char*, int, unsigned, struct statx*)>("statx");
  return fails("statx", TAILOR_CALLER) ? -1 : real(folder, path, flags, mask, status);
}
ssize_t readlink(const char* path, char* into, size_t size) noexcept {
  static auto* const real = next<ssize_t(const char*, char*, size_t)>("readlink");
  return fails("readlink", TAILOR_CALLER) ? -1 : real(path, into, size);
}
int fstat(int descriptor, struct stat* status) noexcept {
  static auto* const real = next<int(int, struct stat*)>("fstat");
  return fails("fstat", TAILOR_CALLER) ? -1 : real(descriptor, status);
}
int statfs(const char* path, struct statfs* status) noexcept {
  static auto* const real = next<int(const char*, struct statfs*)>("statfs");
  return fails("statfs", TAILOR_CALLER) ? -1 : real(path, status);
}
int access(const char* path, int mode) noexcept {
  static auto* const real = next<int(const char*, int)>("access");
  return fails("access", TAILOR_CALLER) ? -1 : real(path, mode);
}
int fchmod(int descriptor, mode_t mode) noexcept {
  static auto* const real = next<int(int, mode_t)>("fchmod");
  return fails("fchmod", TAILOR_CALLER) ? -1 : real(descriptor, mode);
}
int fchown(int descriptor, uid_t owner, gid_t group) noexcept {
  static auto* const real = next<int(int, uid_t, gid_t)>("fchown");
  return fails("fchown", TAILOR_CALLER) ? -1 : real(descriptor, owner, group);
}
int posix_fadvise(int descriptor, off_t offset, off_t size, int advice) noexcept {
  static auto* const real = next<int(int, off_t, off_t, int)>("posix_fadvise");
  return fails("posix_fadvise", TAILOR_CALLER) ? errno : real(descriptor, offset, size, advice);
}
int pipe2(int* ends, int flags) noexcept {
  static auto* const real = next<int(int*, int)>("pipe2");
  return fails("pipe2", TAILOR_CALLER) ? -1 : real(ends, flags);
}
int poll(struct pollfd* waiting, nfds_t count, int milliseconds) {
  static auto* const real = next<int(struct pollfd*, nfds_t, int)>("poll");
  return fails("poll", TAILOR_CALLER) ? -1 : real(waiting, count, milliseconds);
}
pid_t waitpid(pid_t process, int* status, int options) {
  static auto* const real = next<pid_t(pid_t, int*, int)>("waitpid");
  return fails("waitpid", TAILOR_CALLER) ? -1 : real(process, status, options);
}
pid_t fork() noexcept {
  static auto* const real = next<pid_t()>("fork");
  if (fails("fork", TAILOR_CALLER)) return -1;
  const pid_t process = real();
  if (process == 0) tailor::fuzz::armed = false;  // the child is another program's work
  return process;
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
