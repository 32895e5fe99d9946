// The central directory of a zip file, as it is written: nothing here looks at a record's data.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "bytes.h"

namespace tailor::tool {

// What is wrong with the archive; the caller knows its path.
struct Damage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Little-endian numbers from a piece of the file, one after another.
class Fields {
 public:
  explicit Fields(std::span<const unsigned char> data) : data_(data) {}
  std::uint16_t two() { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t four() { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t eight() { return number(8); }
  std::span<const unsigned char> take(std::size_t size);
  std::uint64_t number(std::size_t size);
  std::size_t left() const { return data_.size(); }

 private:
  std::span<const unsigned char> data_;
};

// Sizes and places that do not fit in 32 bits are all ones there, and stand in an extra field.
constexpr std::uint32_t in_extra_field = 0xffffffff;

// The extra field of zip64 among `extra`, or an empty one.
Fields zip64_field(std::span<const unsigned char> extra);

struct Entry {
  std::string name;
  std::uint16_t flags = 0, method = 0;
  std::uint32_t checksum = 0;
  std::uint64_t stored = 0, size = 0;
  std::uint64_t header = 0;  // where its local header begins
  bool folder = false;       // by its attributes; folders have names that end with / as well
};

struct Directory {
  std::vector<Entry> entries;
  std::uint64_t begin = 0;  // where the directory begins, and so where the records must have ended
};

Directory read_directory(const Bytes& bytes);

}  // namespace tailor::tool
