// The pass over the methods of a module, and over one function.
#pragma once
#include <torch/csrc/jit/api/function_impl.h>

#include "pass.h"

namespace tailor {

// Rewrites the function's own graph if something in it fuses, and leaves it as it was, calls not inlined, if not.
// A function that has run gets new plans.
std::vector<Site> fuse_function(torch::jit::Function& function, const PassOptions& options);

// All methods of a class.
void fuse_methods(const c10::ClassTypePtr& type, const Options& options);

}  // namespace tailor
