// What stands in a graph with ops so that torch carries it out in its author's order. Whoever looks at a graph has it without.
#pragma once
#include "ahead.h"
#include "fences.h"

namespace tailor {

inline void keep_order(Block* top) {
  add_ahead(top);
  add_fences(top);
}
inline void drop_order(Block* top) {
  drop_fences(top);
  drop_ahead(top);
}
inline bool may_lose_order(Block* top) { return has_bare_loop(top) || lacks_fences(top); }

}  // namespace tailor
