// Submodules as torch.nn has them, with the same checks, counters and questions: a chain of a scripted model is full of
// these. Their file is in torch/nn, so that reports look for the user's line.
#pragma once
#include "pass_model.h"

namespace tailor::fuzz {

ClassPtr linear_part(std::int64_t in, std::int64_t out, bool bias, bool gradient);

struct BatchNormForm {
  bool affine = true;
  bool statistics = true;
  bool cumulative = false;  // momentum=None
  bool gradient = true;
};
ClassPtr batch_norm_part(std::int64_t channels, const BatchNormForm& form);

ClassPtr group_norm_part(std::int64_t channels, std::int64_t groups, bool affine, bool gradient);
ClassPtr dropout_part();
ClassPtr silu_part();
ClassPtr sigmoid_part();

}  // namespace tailor::fuzz
