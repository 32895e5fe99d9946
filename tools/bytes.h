// Bytes that can be read at any place: an open file, or memory in tests and fuzzers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tailor::tool {

class Bytes {
 public:
  virtual ~Bytes() = default;
  virtual std::uint64_t size() const = 0;
  // Fills `into` from `offset` on; throws Failure where that is not possible.
  virtual void read(std::uint64_t offset, std::span<unsigned char> into) const = 0;
};

class MemoryBytes : public Bytes {
 public:
  explicit MemoryBytes(std::span<const unsigned char> data) : data_(data) {}
  std::uint64_t size() const override { return data_.size(); }
  void read(std::uint64_t offset, std::span<unsigned char> into) const override;

 private:
  std::span<const unsigned char> data_;
};

// A regular file that stays open, so that what is read twice is one file even if the path comes to mean another.
class FileBytes : public Bytes {
 public:
  explicit FileBytes(const std::string& path);
  ~FileBytes() override;
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  std::uint64_t size() const override { return stamp_.size; }
  void read(std::uint64_t offset, std::span<unsigned char> into) const override;

  // Throws Failure if somebody has written to the file since it was opened, or replaced it.
  void require_unchanged() const;

 private:
  struct Stamp {
    std::uint64_t size = 0;
    std::int64_t modified = 0, changed = 0;  // nanoseconds; nobody can set the second one back
    bool operator==(const Stamp&) const = default;
  };
  Stamp stamp() const;

  std::string path_;
  int descriptor_;
  Stamp stamp_;
};

}  // namespace tailor::tool
