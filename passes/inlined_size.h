// How large graphs would be once calls are inlined, counted without inlining any. Nobody sees that from outside: where each function
// calls the next one twice, forty short ones would fill all memory.
#pragma once
#include <stdexcept>

#include "calls.h"

namespace tailor {

struct TooLarge : std::runtime_error {
  using runtime_error::runtime_error;
};

// Throws TooLarge if the graph would have more nodes than there should be memory for.
void require_small(Graph& graph, const Instead& instead);

// Of functions that are to be inlined and rewritten one after the other, before the first one is: also if all of them together would.
void require_small(const Functions& functions);

}  // namespace tailor
