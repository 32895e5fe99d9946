// Checks a torch archive before torch sees it. torch::jit::load compares no checksum, and a damaged file can crash it,
// hang it, or load with other values.
//
// An archive is a zip file: records one after another, each behind a local header, and at the end a central directory
// that names them all again. torch reads the directory and, of the local headers, only the lengths. Here everything
// that is said twice must be said alike, so that one flipped bit does not move a record.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "bytes.h"

namespace tailor::tool {

struct Record {
  std::string name;          // below the archive's top folder, such as "data/0" or "code/__torch__.py"
  std::uint64_t header = 0;  // where its local header begins
  std::uint64_t offset = 0;  // where its data begins
  std::uint64_t stored = 0;  // bytes in the file
  std::uint64_t size = 0;    // bytes once decompressed
  std::uint32_t checksum = 0;
  bool deflated = false;
};

struct Archive {
  std::string folder;           // the one top folder, which torch names after the file
  std::vector<Record> records;  // in the order of their data
  std::unordered_map<std::string, std::size_t>
      places;  // of records by name: a pickle may ask for them millions of times

  const Record* find(const std::string& name) const;
  // The names of records in `folder`, such as "extra/", without it.
  std::vector<std::string> below(const std::string& prefix) const;
  std::uint64_t size() const;  // of all records, decompressed
};

using Advance = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Reads the directory and every byte of every record. Throws Failure (Exit::unreadable) that names `path`, the record
// and what to do. Memory is bounded by the directory; the result of decompression is never held.
Archive check_archive(const Bytes& bytes, const std::string& path, const Advance& advance = {});

// What a record holds, decompressed; throws Damage. For records that are known to be small.
std::vector<unsigned char> content(const Bytes& bytes, const Record& record);

// The same as check_archive for a file that torch::jit::load is to read: says so if it is another kind of torch file, and
// checks what its pickles say about tensors (pickle.h).
Archive check_module_archive(const Bytes& bytes, const std::string& path, const Advance& advance = {});

// The same for a file that torch::jit::pickle_load is to read, such as torch.save writes of tensors.
Archive check_tensor_archive(const Bytes& bytes, const std::string& path);

// What such a file has to be.
inline constexpr const char* what_to_save =
    "save one tensor, or a tuple or list of them, with torch.save; plain dictionaries may be "
    "among them, no OrderedDict or other class";

}  // namespace tailor::tool
