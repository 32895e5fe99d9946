#pragma once
#include "../formula.h"

namespace tailor::chains {

struct linear_mul_batch_norm {
  static constexpr std::string_view name = "linear_mul_batch_norm";
  static constexpr auto formula = batch_norm(y * vec<"scale">);
};

}  // namespace tailor::chains
