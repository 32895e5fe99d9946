// Values of a graph that no constant can stand for, whatever is folded: what is computed of the method's tensor arguments.
#pragma once
#include <unordered_set>

#include "graph.h"

namespace tailor {

class FromArguments {
 public:
  explicit FromArguments(Block* top);

  bool contains(const Value* value) const { return known_.contains(value); }

 private:
  void note(const Value* value, bool is_one);
  void read(Block* block);
  void read_loop(Node* loop);
  void forget(Block* top);

  std::unordered_set<const Value*> known_;
};

}  // namespace tailor
