// The linear of a fast path whose tail is a kernel of its own: torch's, or for float32 ours where that is faster.
#pragma once
#include <ATen/core/Tensor.h>

namespace tailor {

// As at::linear, with its derivative. The tensors are ordinary ones of one dtype and device, and fit; `bias` wants no gradient.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

// The linear's result `out`, a matrix that a kernel has made, with the input's dimensions, and a linear's derivative where one is wanted.
at::Tensor differentiable_linear(const at::Tensor& out, const at::Tensor& input, const at::Tensor& weight);

}  // namespace tailor
