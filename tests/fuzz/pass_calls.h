// How a random model is called, and through which doors it goes.
#pragma once
#include <cstdint>
#include <vector>

#include "pass_model.h"
#include "random.h"

namespace tailor::fuzz {

void draw_calls(Random& random, Model& model, int methods);

// The pass is cheap to run and to compare; the other doors are for some models.
std::vector<Door> draw_doors(std::uint64_t seed);

}  // namespace tailor::fuzz
