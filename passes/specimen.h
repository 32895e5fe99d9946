// A fused site taken out of its method, for tools that want to compare it with what the user wrote.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tailor/tailor.h"

namespace tailor {

// Where an input of a specimen comes from in its method.
struct Origin {
  std::string argument;                 // its name in the fused op's schema, such as "weight"
  std::string attribute;                // its path from the module, such as "gemm.weight"; empty: not an attribute
  std::optional<c10::IValue> constant;  // its value where it is a constant of the graph
};

struct Specimen {
  Site site;
  std::shared_ptr<torch::jit::Graph> before;  // the user's own nodes
  std::shared_ptr<torch::jit::Graph> after;   // the fused op; the same inputs in the same order, one output each
  std::shared_ptr<torch::jit::Graph> guard;   // whether the op is what runs, of the same inputs; null: always
  std::vector<Origin> inputs;
  bool inference_only = false;  // where gradients are wanted the user's own nodes run
};

Report fuse(torch::jit::Module& module, const Options& options, std::vector<Specimen>& specimens);

}  // namespace tailor
