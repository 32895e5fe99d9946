// What a graph shows of memory: views, and what is written in place, hand on that of what they were given.
#pragma once
#include <unordered_map>
#include <vector>

#include "graph.h"

namespace tailor {

// The value whose memory the value's op hands on; null where it makes its own, or does not say whose.
Value* handed_on(const Value* value);

class Views {
 public:
  // The first value that had all of this one's memory: before views of the whole, and before what was written in place.
  Value* whole_of(Value* value);

  // Whether two values are seen to have memory in common. Of two parts of a tensor the graph does not show it.
  bool share_memory(const Value* one, const Value* other);

 private:
  std::vector<Value*> owners_of(const Value* value);

  std::unordered_map<const Value*, Value*> wholes_;  // many lie on the way where a tensor is written to again and again
};

}  // namespace tailor
