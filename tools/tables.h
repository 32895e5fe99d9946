// What the command prints about a module.
#pragma once
#include <string>

#include "tailor/tailor.h"

namespace tailor::tool {

// One line for each site and a last one that counts them. `done` says what happens to the sites that are fused, such as
// "fused" or "would fuse". Those that are also in `before` were fused when the file was read.
std::string site_table(const Report& report, const std::string& done, const Report& before = {});

// The module's parameters and buffers: name, kind, dtype and shape.
std::string tensor_table(const torch::jit::Module& module);

}  // namespace tailor::tool
