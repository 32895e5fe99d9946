#pragma once
#include "../formula.h"

namespace tailor::chains {

struct linear_sigmoid_mul_add {
  static constexpr std::string_view name = "linear_sigmoid_mul_add";
  static constexpr auto formula = sigmoid(y) * scalar<"factor"> + y;
};

}  // namespace tailor::chains
