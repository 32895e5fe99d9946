// Reads a saved TorchScript module that nobody vouches for.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "archive.h"
#include "place.h"
#include "trial.h"

namespace tailor::tool {

// Whether a file is loaded once in a child process before it is loaded here. What this process has just written itself
// is not tried: nobody had it in his hands, and by then there may be other threads.
enum class Trial { yes, no };

// A file whose archive is sound, and which a child process could load.
class ModelFile {
 public:
  // Throws Failure (Exit::unreadable). `limits` come on top of what the archive's own size allows.
  explicit ModelFile(const std::string& path, const Advance& advance = {}, Trial first = Trial::yes,
                     const Limits& limits = {});

  // A new module each time, with types and graphs of its own.
  torch::jit::Module load(Place place) const;

  // The files that the user put into the archive, to be kept when it is rewritten.
  const torch::jit::ExtraFilesMap& extra_files() const { return extra_files_; }

  // Whether its code calls ops of Tailor's, so that torch cannot load it without the library.
  bool needs_tailor() const;

  // Records that torch does not load, and so cannot write again.
  std::vector<std::string> foreign_records() const;

 private:
  void try_in_child(const Limits& limits) const;

  std::string path_;
  FileBytes bytes_;
  Archive archive_;
  torch::jit::ExtraFilesMap extra_files_;
};

// Loads a shared library that defines operators or classes a model uses.
void load_library(const std::string& path);

}  // namespace tailor::tool
