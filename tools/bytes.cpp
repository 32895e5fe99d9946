#include "bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "failure.h"

namespace tailor::tool {

void MemoryBytes::read(std::uint64_t offset, std::span<unsigned char> into) const {
  if (offset > data_.size() || into.size() > data_.size() - offset) throw Failure(Exit::unreadable, "it ends early");
  std::copy_n(data_.begin() + static_cast<std::ptrdiff_t>(offset), into.size(), into.begin());
}

FileBytes::FileBytes(const std::string& path)
    // O_NONBLOCK: opening a named pipe must not wait for a writer before we can say that it is one.
    : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  if (descriptor_ < 0)
    throw Failure(Exit::unreadable,
                  path + ": cannot open: " + system_error() + "; give the name of a file that you may read");
  try {
    struct stat status {};
    if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
      const char* const hint =
          S_ISDIR(status.st_mode) ? "give the name of a file in it" : "copy what it holds to a file first";
      throw Failure(Exit::unreadable, path + ": not a regular file; " + hint);
    }
    stamp_ = stamp();
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

FileBytes::~FileBytes() { close(descriptor_); }

FileBytes::Stamp FileBytes::stamp() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) throw Failure(Exit::unreadable, path_ + ": cannot read: " + system_error());
  const auto nanoseconds = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {static_cast<std::uint64_t>(status.st_size), nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
}

void FileBytes::read(std::uint64_t offset, std::span<unsigned char> into) const {
  while (!into.empty()) {
    const ssize_t got = pread(descriptor_, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Failure(Exit::unreadable, path_ + ": cannot read: " + system_error());
    if (got == 0) throw Failure(Exit::unreadable, path_ + ": became shorter while it was read; try again");
    offset += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

void FileBytes::require_unchanged() const {
  if (stamp() != stamp_) throw Failure(Exit::unreadable, path_ + ": changed while it was read; try again");
}

}  // namespace tailor::tool
