#include "archive.h"
#include "failure.h"
#include "pickle.h"
#include "zip_directory.h"

namespace tailor::tool {
namespace {

// A pickle is held whole, and checking it takes some 20 times its size. torch stores a module's pickles as they are, so
// they are no larger than their file, and compresses only those that say where code came from: a compressed one must not
// be out of all proportion. Beyond the second limit the checker's numbers would overflow.
constexpr std::uint64_t small_pickle = 16 << 20, largest_pickle = std::uint64_t{2} << 30;

void check_size(const Bytes& bytes, const Record& record) {
  const bool packed_small = record.deflated && record.size > small_pickle + 4 * bytes.size();
  if (packed_small || record.size > largest_pickle) throw Damage("it is larger than any that torch writes");
}

void check_kind(const Archive& archive, const std::string& path) {
  const auto not_a_module = [&](const std::string& what) {
    throw Failure(Exit::unreadable, path + ": not a TorchScript module: " + what);
  };
  if (archive.find("archive_format") || archive.find("serialized_exported_program.json")) {
    not_a_module("it is a program of torch.export, which Tailor does not read");
  }
  if (archive.find(".data/extern_modules"))
    not_a_module("it is a package of torch.package; save its module with torch.jit.save");
  // Where there is such a record, torch reads the file in another way.
  if (archive.find("model.json")) not_a_module("an early version of torch wrote it; save it with torch.jit.save");
  if (archive.find("data.pkl") && !archive.find("constants.pkl")) {
    not_a_module("torch.save wrote it; script the module and save it with torch.jit.save");
  }
  // torch writes the version there where a model calls an operator that has changed since the first.
  const char* const version = archive.find(".data/version") ? ".data/version" : "version";
  for (const char* needed : {"data.pkl", "constants.pkl", version}) {
    if (!archive.find(needed))
      not_a_module(std::string("it has no record '") + needed + "'; save it with torch.jit.save");
  }
}

// The values of a pickle's tensors lie in a folder that is named as it is; source code has none.
void check_one(const Bytes& bytes, const Archive& archive, const Record& record, bool tensors) {
  try {
    check_size(bytes, record);
    const std::string folder = record.name.substr(0, record.name.size() - 4) + "/";
    check_pickle(content(bytes, record), [&](const std::string& key) -> std::optional<std::uint64_t> {
      const Record* values = tensors ? archive.find(folder + key) : nullptr;
      return values ? std::optional(values->size) : std::nullopt;
    });
  } catch (const Damage& damage) {
    throw Damage("record '" + printable(record.name) + "': " + damage.what());
  }
}

// What a file is said to be in which a pickle is wrong, and what to do then.
struct Words {
  const char* kind;
  const char* advice;
};

void check_pickles(const Bytes& bytes, const Archive& archive, const std::string& path, const Words& words) {
  try {
    for (const Record& record : archive.records) {
      const bool tensors = record.name == "data.pkl" || record.name == "constants.pkl";
      const bool debug = record.name.starts_with("code/") && record.name.ends_with(".debug_pkl");
      if (tensors || debug) check_one(bytes, archive, record, tensors);
    }
  } catch (const Damage& damage) {
    throw Failure(Exit::unreadable, path + ": " + words.kind + ": " + damage.what() + "; " + words.advice);
  }
}

}  // namespace

Archive check_module_archive(const Bytes& bytes, const std::string& path, const Advance& advance) {
  Archive archive = check_archive(bytes, path, advance);
  check_kind(archive, path);
  check_pickles(bytes, archive, path, {"damaged module", "get or save the file again"});
  return archive;
}

Archive check_tensor_archive(const Bytes& bytes, const std::string& path) {
  Archive archive = check_archive(bytes, path);
  check_pickles(bytes, archive, path, {"damaged, or not a file of tensors alone", what_to_save});
  return archive;
}

}  // namespace tailor::tool
