#include "save.h"

#include <torch/csrc/jit/serialization/export.h>

#include <optional>

#include "failure.h"
#include "same_module.h"

namespace tailor::tool {
namespace {

// torch's writer finishes its archive in a destructor, and a write that fails there ends the process. So it never hears
// of a failure: the first one is kept, nothing more is written, and it is thrown once torch is done.
void write(const torch::jit::Module& module, const torch::jit::ExtraFilesMap& extra_files, StagedFile& file) {
  std::optional<Failure> failed;
  const auto sink = [&](const void* data, std::size_t size) {
    try {
      if (!failed) file.write(data, size);
    } catch (const Failure& failure) {
      failed = failure;
    }
    return size;
  };
  torch::jit::ExportModule(module, sink, extra_files);
  if (failed) throw Failure(*failed);
}

}  // namespace

bool save(const torch::jit::Module& module, const torch::jit::ExtraFilesMap& extra_files, Place place,
          StagedFile& file) {
  try {
    write(module, extra_files, file);
  } catch (const Failure&) {
    throw;
  } catch (const std::exception& error) {
    throw Failure(Exit::not_written,
                  file.path() + ": cannot be written: torch cannot save this module: " + one_line(error));
  }
  file.sync();

  std::optional<std::string> wrong;
  bool needs_tailor = false;
  try {
    const ModelFile written(file.temporary(), {}, Trial::no);
    wrong = difference(module, written.load(place));
    if (!wrong && written.extra_files() != extra_files) wrong = "another set of extra files";
    needs_tailor = written.needs_tailor();
  } catch (const std::exception& error) {
    wrong = one_line(error);
  }
  if (wrong) throw Failure(Exit::not_written, file.path() + ": not written: what was read back differs: " + *wrong);
  return needs_tailor;
}

}  // namespace tailor::tool
