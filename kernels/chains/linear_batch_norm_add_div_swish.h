#pragma once
#include "../formula.h"

namespace tailor::chains {

struct linear_batch_norm_add_div_swish {
  static constexpr std::string_view name = "linear_batch_norm_add_div_swish";
  static constexpr auto formula = swish((batch_norm(y) + vec<"addend">) / scalar<"divisor">);
};

}  // namespace tailor::chains
