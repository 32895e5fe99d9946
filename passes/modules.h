// The pass over the methods of a module, and over one function.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <vector>

#include "pass.h"

namespace tailor {

// Rewrites the function's own graph if something in it fuses, and leaves it as it was, calls not inlined, if not or where
// it throws. Plans that the function has made are not touched.
PassResult fuse_function(torch::jit::Function& function, const PassOptions& options);

// Calls `fuse` with each function, and once more with those that it left as they were and that call one behind them, which was fused
// only then: in two modes, say, or inside `with autocast`, where it must not be. `fuse` tells whether it changed anything.
void fuse_each(const std::vector<torch::jit::Function*>& functions,
               const std::function<bool(torch::jit::Function&, bool again)>& fuse);

// What is done with a module, done with a function that is no method.
Report fuse(torch::jit::Function& function);
Report unfuse(torch::jit::Function& function);
Report inspect(torch::jit::Function& function);

}  // namespace tailor
