// The types that a callee declares for what it takes and gives.
#pragma once
#include <torch/csrc/jit/api/function_impl.h>

#include <optional>
#include <unordered_map>

#include "graph.h"

namespace tailor {

// Whether the type, or that of something in it, may turn out to be another: an Optional, a Union, Any, an interface.
bool leaves_open(const c10::TypePtr& type);

// A file says what type an argument or a result was declared to have, and of other variables nothing: reading it, torch takes the type of
// what they are given first, and what they are given later may fit no more. So before a call is inlined, what is given for a type that
// leaves something open is cast to it, also where it has that type here: torch would find another, of `[x]` or of `x if b else y`.
class Declared {
 public:
  explicit Declared(Block* top) : top_(top) {}  // of the graph that all is inlined into

  void cast(Node* call, torch::jit::GraphFunction& callee);

 private:
  // Whether there, or in what is called from there, something has a tuple, a list or the like that may hold None.
  bool has_holder(Block* top);
  bool has_holder(torch::jit::Function& function);  // each is looked into once

  Block* const top_;
  std::optional<bool> top_has_holder_;
  std::unordered_map<const torch::jit::Function*, bool> known_;
};

}  // namespace tailor
