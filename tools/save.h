// Writes a module so that its file is right or not there at all.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include "load.h"
#include "staged_file.h"

namespace tailor::tool {

// Writes the module to the temporary file, syncs it, reads it back and compares. What is left to do is commit().
// Returns whether what was written needs Tailor to be loaded. Throws Failure (Exit::not_written).
bool save(const torch::jit::Module& module, const torch::jit::ExtraFilesMap& extra_files, Place place,
          StagedFile& file);

}  // namespace tailor::tool
