// The reference: a chain as the plain ATen calls that an author would have written. It defines what the fused op is.
#pragma once
#include <ATen/core/ivalue.h>

#include "chain.h"

namespace tailor {

// What a step takes besides the results of others: for a vector or scalar its value, for a norm the first of the norm's
// arguments in the op's order, for the linear the first of input, weight and bias.
struct StepArguments {
  const c10::IValue* first = nullptr;
};

enum class Norm {
  as_called,  // with training and momentum among the arguments
  inference,  // the overload without them
  skipped     // for shapes only: a norm changes none
};

// Runs the steps up to and including `last`. In floating dtypes swish is at::silu, which rounds once.
//
// An author may have spelled the same chain otherwise, and then promotion, broadcasting and errors are that spelling's: see
// spelling.h. Empty means the formula's own.
at::Tensor reference(const Chain& chain, const StepArguments* arguments, Norm norm, int last,
                     std::string_view spelling = {});

// The same from the linear's result on; the linear's arguments are not looked at.
at::Tensor reference_of_tail(const Chain& chain, const StepArguments* arguments, Norm norm, const at::Tensor& y);

}  // namespace tailor
