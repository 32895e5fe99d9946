// Spoils what a call of the fused side has come to, by one of the faults of pass_plant.h.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace tailor::fuzz {

struct Outcome;

class Spoiler {
 public:
  explicit Spoiler(std::string what) : what_(std::move(what)) {}

  void before(const std::vector<at::Tensor>& state);
  void after(Outcome& outcome, const std::vector<at::Tensor>& state);

  // How often in this process there was something to spoil.
  static std::int64_t count();
  static bool note(bool spoiled);

 private:
  bool spoil(Outcome& outcome, const std::vector<at::Tensor>& state) const;
  bool spoil_values(std::vector<at::Tensor>& values) const;

  std::string what_;
  std::vector<at::Tensor> state_;  // before the call
};

}  // namespace tailor::fuzz
