// What a file says of the types of tuples.
#pragma once
#include "graph.h"

namespace tailor {

// A file says no tuple's type: reading `[(x, 1.0)]` torch makes a list of tuples of a tensor and a number, and (x, None) is none of those.
// The author's number was an argument that may be None, until the call was inlined and the argument was known. So where such a tuple comes
// into a list, a dictionary, a loop or out of a branch, what it holds is told from what it may hold.
void widen_tuples(Block* top);

// Whether the node reads some that would have to be told so, but stay as they are: each reader gets a tuple of its own, and where these are
// constant and hold a complex number or a device, torch fails over two that are equal.
bool reads_tuples_not_to_be_widened(Node* node);

}  // namespace tailor
