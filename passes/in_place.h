// Lets the pass see what is written in place, and leaves no trace of it.
#pragma once
#include <unordered_set>
#include <vector>

#include "graph.h"

namespace tailor {

// An in-place op returns the tensor that it has written: for the search, those who read the tensor afterwards read the
// result, so that the data flow is in the values.
//
// That is taken back once the chains are rewritten, because torch's executor asks of each value by itself who wants its
// gradient. Of one that is only written to, and only while gradients are off, it says that nobody does, although the
// result, which is the same tensor, is read with gradients on.
class InPlaceResults {
 public:
  explicit InPlaceResults(Block* top);

  // Everyone reads again what he had read, and an op what its chain had.
  void give_back() const;

 private:
  struct Read {
    Node* user;
    std::size_t offset;
    Value *before, *meanwhile;
  };

  void note(Value* value, Value* passed_on);

  Block* top_;
  std::vector<Read> reads_;          // those that were given another value
  std::unordered_set<Node*> nodes_;  // of the graph as it was
};

}  // namespace tailor
