// What keeps torch's executor from moving things past an op, and past what has an effect.
//
// Of what torch differentiates by itself the executor makes one node, and moves each part of it to the next that reads it, wherever no
// schema says that something is written. A batch norm writes its statistics and does not say so, a dropout draws the next random numbers,
// a sum raises. In the author's graph they keep their order, since all of them are in that one node. An op is not: it parts what was
// one, and things would change places across it, and with one another. So where there is an op, `tailor::fence` stands on both sides of
// each op, and of all else of that kind: it does nothing, but torch takes it for something that has effects, past which nothing may be
// moved.
#pragma once
#include "graph.h"

namespace tailor {

// Of a graph, and of what it forks.
void add_fences(Block* top);
void drop_fences(Block* top);

// Whether something needs a fence that has none.
bool lacks_fences(Block* top);

}  // namespace tailor
