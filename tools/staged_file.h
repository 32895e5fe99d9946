// A file that appears whole or not at all: written beside its target, synced, then renamed over it.
#pragma once
#include <sys/stat.h>

#include <cstddef>
#include <string>
#include <vector>

namespace tailor::tool {

// Throws Failure (Exit::not_written) if `path` is something that a file must not replace, such as a device or a folder,
// or cannot, such as a mount point. Called before the work begins, so that nobody waits for a file that cannot be
// written, and so that of several files none is written where one cannot be.
void require_writable(const std::string& path);

// Whether two paths mean one file, however they are spelled, and also if it is not there yet.
bool is_same_file(const std::string& one, const std::string& other);

// Whether this is the file to which standard output or standard error is redirected.
bool is_standard_output(const std::string& path);

class StagedFile {
 public:
  // Creates `<target>.tailor-tmp-XXXXXX`, where target is what `path` means once its symbolic links are followed.
  explicit StagedFile(const std::string& path);
  ~StagedFile();  // removes the temporary file unless it was committed
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  // These throw Failure (Exit::not_written).
  void write(const void* data, std::size_t size);
  void sync();  // to the disk; nothing can be written afterwards

  const std::string& path() const { return path_; }  // as the user wrote it
  const std::string& temporary() const { return temporary_; }

 private:
  friend void commit(const std::vector<StagedFile*>& files);

  void make();
  void keep_permissions(const struct stat& old);
  void rename_to_target();
  void sync_folder() const;
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_, target_, temporary_;
  int descriptor_ = -1;
  std::size_t slot_ = 0;
};

// The targets are the new files from here on, also after a power cut. A signal that ends the process finds all of them
// in place, or none. Throws Failure (Exit::not_written).
void commit(const std::vector<StagedFile*>& files);

// From here on, a signal that ends the process removes the temporary files first, and a limit on file sizes is an error
// of write() like any other.
void remove_staged_files_on_signals();

}  // namespace tailor::tool
