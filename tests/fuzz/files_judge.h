// What the command makes of a mutant, and whether that is right.
//
// A mutant is either refused, with one line that names the file and with exit status 3, or read. What is read must be
// - where the format covers the change: what the original is. The same records as torch reads them, and from `fuse` and
//   `unfuse` the same output, byte for byte.
// - where it does not, since the mutant's checksums are right: some model. It may fail verification (4), or be one that
//   torch cannot save (6). It must be the same each time it is loaded, so that nothing in it comes from outside the file,
//   and its tensors must come out as they went in.
// Never a crash, a hang, a fault in Tailor, or anything but the output left in the folder; and no more memory than 64 MiB,
// 16 bytes for each of the file's and 48 for each of a pickle that it has compressed.
#pragma once
#include "files_mutant.h"
#include "tools/options.h"

namespace tailor::fuzz {

struct Finding {
  std::string outcome;     // a column of the table: "refused", "read, the same", "read, another model", "FAILED", ...
  std::string message;     // what the command said, or what is wrong
  std::uint64_t peak = 0;  // bytes of memory that the command used beyond what was used before
  bool failed() const { return outcome == "FAILED"; }
};

class Judge {
 public:
  explicit Judge(const std::vector<Original>& all);
  Finding operator()(const Mutant& mutant, tool::Command command) const;

 private:
  struct Expected {
    std::string said;
    Contents output;
  };
  const std::vector<Original>& all_;
  tool::Folder folder_;
  std::map<std::pair<const Original*, tool::Command>, Expected> expected_;
};

tool::Command command_for(std::uint64_t number);
const char* name_of(tool::Command command);

}  // namespace tailor::fuzz
