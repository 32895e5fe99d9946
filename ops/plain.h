// Whether a call is an ordinary one: plain dense tensors, and nothing in the thread that changes what ops mean.
#pragma once
#include <ATen/core/Tensor.h>

namespace tailor {

// Null if so, else what is unusual, in a user's words.
const char* unusual_thread();                          // autocast, tracing, vmap, functorch, modes
const char* unusual_tensor(const at::Tensor& tensor);  // subclasses, layouts, conjugate views, dual numbers, no memory

// Whether a tensor carries a forward-mode gradient.
bool is_dual(const at::Tensor& tensor);

// Whether autograd will not have the tensor where gradients are wanted: what inference mode made, and a view that was made where
// gradients were off, or with others at once, once its base was written to. Of no tensor it has nothing to say.
bool is_refused_by_autograd(const at::Tensor& tensor);

// To the 16 bytes that kernels read at a time.
bool is_aligned(const at::Tensor& tensor);

}  // namespace tailor
