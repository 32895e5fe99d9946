// Which values of a graph may share memory.
//
// torch's AliasDb believes the ops' schemas, and those of `dropout`, `type_as`, `einsum` and others say that the result is new where
// it may be the very tensor that was given. So it is asked of a copy of the graph, in which the result of each such op is what was given.
//
// For it a tensor that is a constant is new memory, and so is what somebody else's op returns that was given none. But the graph of a
// trace, or of what is frozen, has tensors of the program's among its constants, and an op may hold some: these are inputs of the copy, which
// for torch may be any memory from outside.
//
// Nor does it go round a loop, or past one: what a turn begins with may be what the one before ended with, and what a loop hands on,
// where it takes no turn, what it was given. Such values are ties, and values that touch tied ones may share memory.
//
// Nor does it see that what comes out of a container that may hold anything is what went in: all tensors that become anything, or were, are
// one tie, with what the graph was given.
#pragma once
#include <torch/csrc/jit/ir/alias_analysis.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "graph.h"

namespace tailor {

class Aliases {
 public:
  explicit Aliases(Graph& graph);

  bool may_alias(const Value* one, const Value* other) const;
  bool may_contain(const Value* container, const Value* value) const;
  bool writes_to(const Node* writer, const torch::jit::ValueSet& values) const;

 private:
  using Values = std::vector<Value*>;

  void follow(const Block& block, Block& copy);
  void follow_outputs(const Node& node, Node& copy);
  void tie_turns(Node& loop);
  void tie_what_was_anything(Block* top);
  void group_ties();
  bool touches(Value* value, const Values& tie) const;
  bool are_tied(Value* one, Value* other) const;

  std::unordered_map<const Value*, Value*> values_;  // of the graph: what stands for them in the copy
  std::unordered_map<const Node*, Node*> nodes_;
  std::vector<Values> ties_;  // in the copy; none of one touches any of another
  std::unique_ptr<torch::jit::AliasDb> db_;
  bool moved_ = false;  // some tensor was given another's memory (`set_`): then any two may share theirs
};

}  // namespace tailor
