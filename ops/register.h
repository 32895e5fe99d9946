// Turns a chain into its op. An op file holds the hand-written schemas, which are a promise to saved files, and calls
//
//   define<chains::linear_mul_batch_norm>(library, {"linear_mul_batch_norm(Tensor input, …) -> Tensor", …});
//
// The schemas are checked against the formula: the linear's arguments, then the formula's in its order.
//
// One kernel serves every dispatch key: it is composite, so whatever torch does to the unfused chain (autograd of any
// order, autocast, functorch, meta and fake tensors, tensor subclasses, back ends we have never heard of) it does to
// the calls inside. A fast path is taken from within that kernel, once it has seen that none of this is at work.
#pragma once
#include <torch/library.h>

#include <initializer_list>

#include "chain.h"

namespace tailor {

void define(torch::Library& library, const Chain& chain, std::initializer_list<const char*> schemas);

template <class C>
void define(torch::Library& library, std::initializer_list<const char*> schemas) {
  static const Chain chain = describe<C>();
  define(library, chain, schemas);
}

}  // namespace tailor
