// How torch lays out what a chain comes to.
#pragma once
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <optional>

#include "chain.h"
#include "spelling.h"

namespace tailor {

// A tensor without values that has the sizes and strides of the last step's result, as its author spelled the steps, where that
// of `y`, the linear's, is given likewise. `operands`: the vectors and scalars, None for a scalar that is a number. Calls nothing that anybody could watch: in Python's presence torch answers such questions of a
// device without values in Python, and counts them as the model's own operations. Throws where the operands are not the chain's.
at::Tensor layout_of(const Chain& chain, const Spelling& spelling, const at::Tensor& y,
                     const c10::List<std::optional<at::Tensor>>& operands, bool on_cpu);

}  // namespace tailor
