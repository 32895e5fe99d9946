// A picture of `forward`, or of the other methods where there is none: their dataflow as SVG, before and after fusing
// side by side.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>

namespace tailor::tool {

// `after` may be null: then there is one graph. Works on inlined copies; the modules stay as they are.
std::string draw(const torch::jit::Module& before, const torch::jit::Module* after);

}  // namespace tailor::tool
