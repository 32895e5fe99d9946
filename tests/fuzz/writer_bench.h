// One way in which the command writes files, and a look at what has become of them.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "../tools/files.h"
#include "files_originals.h"
#include "tools/options.h"

namespace tailor::fuzz {

struct Scene {
  const char* name;
  tool::Command command = tool::Command::fuse;
  bool verify = false;
  bool old = true;        // whether the files are there already
  bool in_place = false;  // the model is written over itself
  bool links = false;     // to another folder: the model over an old file, the report to where nothing is yet
};
const std::vector<Scene>& scenes();

class Bench {
 public:
  explicit Bench(const Scene& scene);

  // The command; what it says if it fails.
  std::string run();

  // All files as they were, and nothing beside them.
  void reset();
  // What is left lying stays, but the model that is read is the old one.
  void renew_input();

  std::size_t temporary_files() const;

  // What is wrong with what is there: nothing, where each output is old or new. Counts the new ones.
  std::string look(bool temporary_allowed, std::size_t& fresh) const;

  std::size_t outputs() const { return outputs_.size(); }

 private:
  struct Output {
    std::string asked;              // what the command is told
    std::string name;               // where the file is
    std::optional<tool::Data> old;  // what it holds before
    std::string link;               // what `asked` holds, where it is a symbolic link
    Contents fresh;                 // what it holds afterwards
  };

  std::vector<std::string> names() const;
  const Output* output_named(const std::string& name) const;
  Contents without_id(const std::string& name) const;
  std::string changed(const Output& output, bool& fresh) const;

  const Scene scene_;
  const tool::Data model_;
  tool::Folder folder_;
  std::vector<Output> outputs_;
};

}  // namespace tailor::fuzz
