// The pass over the methods of a module, and over one function.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include "pass.h"

namespace tailor {

// Rewrites the function's own graph if something in it fuses, and leaves it as it was, calls not inlined, if not or where
// it throws. Plans that the function has made are not touched.
std::vector<Site> fuse_function(torch::jit::Function& function, const PassOptions& options);

// What is done with a module, done with a function that is no method.
Report fuse(torch::jit::Function& function);
Report unfuse(torch::jit::Function& function);
Report inspect(torch::jit::Function& function);

}  // namespace tailor
