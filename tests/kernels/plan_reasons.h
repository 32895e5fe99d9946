// Why a problem gets no tiles, of elements or of halves, on a GPU of 132 processors.
#pragma once
#include <string>

#include "kernels/hopper/elements_plan.h"
#include "kernels/hopper/halves_plan.h"

namespace tailor::hopper {

inline std::string reason(Shape shape, Wanted wanted = Wanted::where_faster) {
  shape.processors = 132;
  const char* why = refuses(shape, wanted);
  return why != nullptr ? why : "";
}

inline std::string halves_reason(Shape shape, Wanted wanted = Wanted::where_faster) {
  shape.processors = 132;
  shape.element_bytes = 4;
  const char* why = refuses_halves(shape, wanted);
  return why != nullptr ? why : "";
}

inline const std::string few = "it has too few tiles for the processors";

}  // namespace tailor::hopper
