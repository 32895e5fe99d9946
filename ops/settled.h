// What kernels derive from weights, kept from call to call for weights that the user has settled: his word that nobody writes
// to them behind torch's back. What torch can see is still looked at: a version, a storage, a shape that is another one, and it
// is derived anew.
#pragma once
#include <ATen/core/Tensor.h>

#include "../kernels/whole.h"

namespace tailor {

void settle(const at::Tensor& weight);
void release(const at::Tensor& weight);

bool is_settled(const at::Tensor& weight);

// Whether what these kernels derive from a weight can be kept now: it is settled, its bytes are not too many, and no graph is
// being captured.
bool can_keep(const at::Tensor& weight, const WholeKernels& kernels, const Linear& linear, const Tail& tail);

// Of all weights, on all devices.
std::int64_t kept_bytes();

// What is kept of a settled weight for these kernels, made now if need be, ready on the current stream. Undefined where nothing
// can be.
at::Tensor kept(const at::Tensor& weight, const WholeKernels& kernels, const Linear& linear, const Tail& tail);

}  // namespace tailor
