// A random model for a seed.
#pragma once
#include "pass_model.h"

namespace tailor::fuzz {

Model generate(std::uint64_t seed);

}  // namespace tailor::fuzz
