// Takes out of a failing model what its failure does not need.
#pragma once
#include "pass_judge.h"

namespace tailor::fuzz {

// The numbers of the model that can be dropped while it fails in the same way.
Without minimised(const Model& model, const Verdict& verdict);

}  // namespace tailor::fuzz
