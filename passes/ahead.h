// Loops that torch's interpreter would run in the midst of reading arguments. Where a loop's result is read once, and next, the
// interpreter runs the loop where that reader reads it, and a variable that it has read for the last time by its count it clears. Of an
// argument that is read before the loop, and in it, that is the loop's first turn: the second finds nothing, or None. A fused op reads
// together what its author read apart, so where there is one, loops run ahead of whoever reads them: behind each stands `tailor::ahead`,
// which has two results, and what has two the interpreter runs where it stands. `tailor::ahead_untyped` also keeps from torch what is
// known of tuples that such a loop, or a branch, goes on with: a file has to say the type that they have (docs/pass.md).
#pragma once
#include "graph.h"

namespace tailor {

// Of a graph, and of what it forks.
void add_ahead(Block* top);
void drop_ahead(Block* top);  // whoever looks at a graph has it without

// Whether a loop's result is read as it is. The loops in torch's own layers ask for a shape, whose product they compare first of all.
bool has_bare_loop(Block* top);

}  // namespace tailor
