#pragma once
#include "../formula.h"

namespace tailor::chains {

struct linear_swish_add_group_norm {
  static constexpr std::string_view name = "linear_swish_add_group_norm";
  static constexpr auto formula = group_norm(swish(y) + vec<"addend">);
};

}  // namespace tailor::chains
