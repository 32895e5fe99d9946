// How large what a gradient is added up from is, where little of it may be left: what is left is then the rounding of that.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <vector>

namespace tailor::tool {

// A graph that has run, and what was computed on the way.
struct Way {
  std::vector<torch::jit::Value*> values;
  std::vector<at::Tensor> tensors;                          // of these
  std::function<c10::IValue(torch::jit::Value*)> value_of;  // of any value; None where it is not known
};

// The largest of what norms subtract their means from, as they scale it; 0 where there is none. The rounding of that is left in the result.
double size_in_front_of_norms(const Way& way);

// For each leaf, how large its gradient would be if its terms kept their sizes and had signs at random: nothing cancels then, and nothing
// adds up that does not as a rule. In front of a norm by its input's statistics the terms are those whose mean it subtracts: where a
// group is a single number, their rounding is all that is left of them.
std::vector<double> sizes_of_terms(const Way& way, const at::Tensor& output, const at::Tensor& of_output,
                                   const std::vector<at::Tensor>& leaves, const at::Generator& generator);

}  // namespace tailor::tool
