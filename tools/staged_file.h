// A file that appears whole or not at all: written beside its target, synced, then renamed over it.
#pragma once
#include <cstddef>
#include <string>

namespace tailor::tool {

// Throws Failure (Exit::not_written) if `path` is something that a file must not replace, such as a device or a folder.
// Called before the work begins, so that nobody waits for a file that cannot be written.
void require_writable(const std::string& path);

class StagedFile {
 public:
  // Creates `<target>.tailor-tmp-XXXXXX`, where target is what `path` means once its symbolic links are followed.
  explicit StagedFile(const std::string& path);
  ~StagedFile();  // removes the temporary file unless it was committed
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  // These throw Failure (Exit::not_written).
  void write(const void* data, std::size_t size);
  void sync();    // to the disk; nothing can be written afterwards
  void commit();  // the target is the new file from here on, also after a power cut

  const std::string& path() const { return path_; }  // as the user wrote it
  const std::string& temporary() const { return temporary_; }

 private:
  void make();
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_, target_, temporary_;
  int descriptor_ = -1;
  std::size_t slot_ = 0;
};

// From here on, a signal that ends the process removes the temporary files first, and a limit on file sizes is an error
// of write() like any other.
void remove_staged_files_on_signals();

}  // namespace tailor::tool
