// Goes through the doors of pass_model.h to a fused module.
#pragma once
#include "pass_places.h"
#include "tailor/tailor.h"

namespace tailor::fuzz {

// Runs the pass on copies of the graphs. `plant`: what is spoiled in them, see pass_plant.h.
Graphs through_pass(const Graphs& plain, std::vector<Site>& sites, const std::string& plant = "");

// What tailor::fuse, a file and tailor::unfuse make of a module, where the door has them.
torch::jit::Module changed(Door door, torch::jit::Module module, const Model& model, Places* places = nullptr);

// The fused side of a door, from a class that is not fused yet; it is afterwards. `graphs` holds what the side refers to,
// `places`, where it is wanted, what became of the linears: before they were unfused, at the doors that do so, and of the
// executor's nothing, which fuses while it runs.
Side through(Door door, const Compiled& compiled, const Model& model, Graphs& graphs, Places* places = nullptr);

// Looks on, as long as it lives, at what the executor's pre-pass makes while Tailor is automatic.
class Watch {
 public:
  explicit Watch(std::string plant = "");
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch();

  Places places;  // what is there afterwards
  const std::string plant;
};

torch::jit::Module saved_and_loaded(const torch::jit::Module& module);

bool automatic(bool on);  // tailor::auto

}  // namespace tailor::fuzz
