#include "archive.h"
#include "failure.h"
#include "pickle.h"
#include "zip_directory.h"

namespace tailor::tool {
namespace {

// The one thing beside the directory that is held whole. A model's pickle has kilobytes, with its vocabulary megabytes.
constexpr std::uint64_t largest_pickle = 64 << 20;

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
  for (const char* needed : {"data.pkl", "constants.pkl", "version"}) {
    if (!archive.find(needed))
      not_a_module(std::string("it has no record '") + needed + "'; save it with torch.jit.save");
  }
}

void check_pickles(const Bytes& bytes, const Archive& archive) {
  for (const Record& record : archive.records) {
    const bool tensors = record.name == "data.pkl" || record.name == "constants.pkl";
    const bool debug = record.name.starts_with("code/") && record.name.ends_with(".debug_pkl");
    if (!tensors && !debug) continue;
    try {
      if (record.size > largest_pickle) throw Damage("it is larger than any that torch writes");
      // The values lie in a folder that is named as the pickle is; source code has none.
      const std::string folder = record.name.substr(0, record.name.size() - 4) + "/";
      check_pickle(content(bytes, record), [&](const std::string& key) -> std::optional<std::uint64_t> {
        const Record* values = tensors ? archive.find(folder + key) : nullptr;
        return values ? std::optional(values->size) : std::nullopt;
      });
    } catch (const Damage& damage) {
      throw Damage("record '" + printable(record.name) + "': " + damage.what());
    }
  }
}

}  // namespace

Archive check_module_archive(const Bytes& bytes, const std::string& path, const Advance& advance) {
  Archive archive = check_archive(bytes, path, advance);
  check_kind(archive, path);
  try {
    check_pickles(bytes, archive);
  } catch (const Damage& damage) {
    throw Failure(Exit::unreadable, path + ": damaged module: " + damage.what() + "; get or save the file again");
  }
  return archive;
}

}  // namespace tailor::tool
