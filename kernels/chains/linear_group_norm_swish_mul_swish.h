#pragma once
#include "../formula.h"

namespace tailor::chains {

struct linear_group_norm_swish_mul_swish {
  static constexpr std::string_view name = "linear_group_norm_swish_mul_swish";
  static constexpr auto formula = swish(swish(group_norm(y)) * vec<"scale">);
};

}  // namespace tailor::chains
