// Arguments that torch's interpreter would lose. Where a loop's result is read once, and next, the interpreter runs the loop while it reads
// the arguments of that reader, and a variable that it has read for the last time by its count it clears. Of an argument that is
// read before the loop, and in it, that is the loop's first turn: the second finds nothing, or None. A fused op reads together what
// was read apart, so graphs with one have such arguments as variables of their own, `tailor::held`.
#pragma once
#include "graph.h"

namespace tailor {

void hold_arguments(Block* top);       // in what it forks, too
void let_go_of_arguments(Block* top);  // whoever looks at a graph has them as they were

}  // namespace tailor
