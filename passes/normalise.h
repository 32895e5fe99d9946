// A graph without what hides a chain and changes nothing: other names of the same ops, choices that are known, casts of a value to its own
// type, tuples that are taken apart again.
#pragma once
#include "graph.h"

namespace tailor {

void normalise(std::shared_ptr<Graph> graph);

}  // namespace tailor
