#pragma once
#include "../formula.h"

namespace tailor::chains {

struct linear_add_swish_group_norm {
  static constexpr std::string_view name = "linear_add_swish_group_norm";
  static constexpr auto formula = group_norm(swish(y + vec<"addend">));
};

}  // namespace tailor::chains
