// The six chains. `y` is linear(input, weight, bias); the norms bring their own arguments.
// A chain's op is tailor::<name>, its arguments are those of the linear and then the formula's, in the formula's order.
#pragma once
#include "formula.h"

namespace tailor::chains {

struct linear_mul_batch_norm {
  static constexpr std::string_view name = "linear_mul_batch_norm";
  static constexpr auto formula = batch_norm(y * vec<"scale">);
};

struct linear_sigmoid_mul_add {
  static constexpr std::string_view name = "linear_sigmoid_mul_add";
  static constexpr auto formula = sigmoid(y) * scalar<"factor"> + y;
};

struct linear_add_swish_group_norm {
  static constexpr std::string_view name = "linear_add_swish_group_norm";
  static constexpr auto formula = group_norm(swish(y + vec<"addend">));
};

struct linear_swish_add_group_norm {
  static constexpr std::string_view name = "linear_swish_add_group_norm";
  static constexpr auto formula = group_norm(swish(y) + vec<"addend">);
};

struct linear_batch_norm_add_div_swish {
  static constexpr std::string_view name = "linear_batch_norm_add_div_swish";
  static constexpr auto formula = swish((batch_norm(y) + vec<"addend">) / scalar<"divisor">);
};

struct linear_group_norm_swish_mul_swish {
  static constexpr std::string_view name = "linear_group_norm_swish_mul_swish";
  static constexpr auto formula = swish(swish(group_norm(y)) * vec<"scale">);
};

}  // namespace tailor::chains
