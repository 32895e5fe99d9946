// The linear alone, as a chain of no further step: for what computes its tail from the linear's result, and for the products
// of a backward.
#pragma once
#include "../formula.h"

namespace tailor::hopper {

struct linear {
  static constexpr std::string_view name = "linear";
  static constexpr auto formula = y;
};

}  // namespace tailor::hopper
