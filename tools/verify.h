// Does a fused module compute what the original does? Asked before a file is written.
//
// Each site by itself: the user's nodes and the fused op run on the weights that the module holds and on sampled values
// of everything else. Then, where the user describes its arguments, the whole model. Values, written buffers and
// gradients are compared, in training and in eval; a float64 run of the user's nodes is the referee (compare.h).
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "../passes/specimen.h"

namespace tailor::tool {

struct Verdict {
  bool ok;
  std::string message;  // what was checked, or the first thing that is wrong
};

struct VerifyOptions {
  std::vector<std::string> inputs;  // texts such as float32[16,8192] or 3, one for each argument of forward
  std::string input_file;           // or a file that torch.save wrote; both empty: sites only
  uint64_t seed = 0;
  std::function<void(std::size_t done, std::size_t total, const std::string& what)> progress;
};

// Changes neither module. Throws std::invalid_argument where `inputs` or `input_file` cannot be read.
Verdict verify(const torch::jit::Module& original, const torch::jit::Module& fused,
               const std::vector<Specimen>& specimens, const VerifyOptions& options);

// The two halves of it. A site that cannot be run by itself gives ok and a message that says why; else the message is
// empty where all is well.
Verdict verify_site(const torch::jit::Module& original, const Specimen& specimen, uint64_t seed);
Verdict verify_model(const torch::jit::Module& original, const torch::jit::Module& fused,
                     const std::vector<c10::IValue>& inputs, uint64_t seed);

}  // namespace tailor::tool
