// Whether two modules are the same: used to see that a file says what was meant.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <string>

namespace tailor::tool {

// The first difference, in words, or nothing. Compared are all attributes of the module and its submodules by name,
// tensors bit by bit with their dtype, sizes, strides and device, and of every method its arguments and the operators
// it calls to some effect, in order. Names of types and of values within a graph may differ: torch makes them up as it reads a file.
std::optional<std::string> difference(const torch::jit::Module& expected, const torch::jit::Module& actual);

}  // namespace tailor::tool
