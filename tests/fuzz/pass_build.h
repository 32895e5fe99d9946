// Makes modules of a random model: compiled once, filled with values as often as wanted.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <map>

#include "pass_model.h"

namespace tailor::fuzz {

class Compiled {
 public:
  struct As {
    // Else their methods are called at once: torch's executor runs what is forked, and not as it is written.
    bool forks = true;
    // All who share memory share a version counter: silent aliases, and what stands behind `.data`.
    bool visibly = false;
  };
  Compiled(const Model& model, const Without& without, As as);
  Compiled(const Model& model, const Without& without) : Compiled(model, without, As()) {}

  // A new instance with the model's values, rounded to its type and then held as `type`.
  torch::jit::Module instance(Type type) const;
  torch::jit::Module instance() const { return instance(model_.type); }

  bool forks() const { return forks_; }                            // whether anything is forked
  bool switches_gradients() const { return switches_gradients_; }  // on

  // By chain: the lines of its linear.
  const std::map<int, std::vector<std::string>>& sites() const { return sites_; }

 private:
  torch::jit::Module make(const Class& type, const std::string& path, Type held) const;
  void share(const Class& type, const torch::jit::Module& module) const;

  const Model& model_;
  std::map<const Class*, torch::jit::Module> prototypes_;
  As as_;
  bool forks_ = false, switches_gradients_ = false;
  std::map<int, std::vector<std::string>> sites_;
};

at::ScalarType scalar_type(Type type);

// Random values of a shape that depend on the name only.
at::Tensor random_values(std::uint64_t seed, const std::string& name, at::IntArrayRef shape,
                         Attribute::Values values = Attribute::Values::normal);

}  // namespace tailor::fuzz
