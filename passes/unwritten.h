// What stands in a fused graph for operands as they are before others are written to: `tailor::unwritten`, one for each and each that is
// written, by itself or, where that is written under a condition only, in an If of it.
#pragma once
#include "graph.h"

namespace tailor {

// What it was given to hold; null for any other value.
Value* before_held(Value* value);
bool holds_unwritten(Node* node);  // whether that is all that the node does

bool drop_unwritten(Block* block);  // whether there was any

}  // namespace tailor
