// What a file of a module has in it, besides what the module is seen to call.
#pragma once
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>

#include <vector>

namespace tailor {

// All functions whose code torch writes with the module: those of all objects in it, what they call, and every method of every class that
// either names, as the type of an attribute or of a value, be there an object of it or none.
std::vector<torch::jit::GraphFunction*> functions_in_file_of(const torch::jit::Module& module);

}  // namespace tailor
