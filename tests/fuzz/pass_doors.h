// The ways to a fused module, as far as they can be gone from C++.
#pragma once
#include "pass_run.h"
#include "tailor/tailor.h"

namespace tailor::fuzz {

enum class Door {
  pass,      // run_pass on the graphs, run as they are written
  fuse,      // tailor::fuse, run by torch's executor
  hook,      // the emit hook, which scripting calls
  executor,  // nobody asks: the executor's pre-pass, without gradients
  file,      // tailor::fuse, saved and loaded
  unfuse,    // fused and taken back
  back       // the same of what was saved and loaded in between
};
const char* to_string(Door door);
constexpr bool is_by_file(Door door) { return door == Door::file || door == Door::back; }

// Runs the pass on copies of the graphs.
Graphs through_pass(const Graphs& plain, std::vector<Site>& sites);

// What tailor::fuse, a file and tailor::unfuse make of a module, where the door has them.
torch::jit::Module changed(Door door, torch::jit::Module module);

// The fused side of a door, from a class that is not fused yet; it is afterwards. `graphs` holds what the side refers to.
Side through(Door door, const Compiled& compiled, const Model& model, Graphs& graphs);

torch::jit::Module saved_and_loaded(const torch::jit::Module& module);

bool automatic(bool on);  // tailor::auto

}  // namespace tailor::fuzz
