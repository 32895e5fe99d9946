// Finds a chain's formula in a graph, node by node, starting from a linear. A match that fails says why.
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "../ops/spelling.h"
#include "linears.h"

namespace tailor {

// One node of a match and how far the chain is when it has run.
struct Part {
  Node* node;
  int done;  // the last step that is complete; -1 inside the linear
};

// A node that reads no more than the shape of a part's result.
struct ShapeReader {
  Node* node;
  Value* value;
};

struct Match {
  const Chain* chain = nullptr;
  Linear linear;
  std::vector<Part> parts;                     // in the order of the block; the last gives the result
  std::vector<std::vector<Value*>> arguments;  // by step: those of the op
  std::vector<Value*> results;                 // by step
  std::vector<ShapeReader> shape_readers;
  std::string spelling;         // see ops/spelling.h; empty where it is the formula's
  bool inference_only = false;  // eager has no gradients for that spelling

  bool promotes_as_formula() const { return Spelling(spelling).promotes_as_formula(); }

  // Whether anything may tell that an operand stood left of the value: the result's strides, a message about sizes.
  bool order_shows() const;

  bool needs_uniform() const { return !promotes_as_formula() || order_shows(); }

  // In place it stands behind a guard, which lets nothing complex through.
  bool ends_in_silu() const {
    const auto last = static_cast<std::size_t>(chain->last());
    return Spelling(spelling).is_silu(last) && !Spelling(spelling).is_in_place(last);
  }

  Node* last() const { return parts.back().node; }
};

struct Miss {
  int parts;             // how many nodes were found after the linear
  bool right_operation;  // the next was the right one in a form that the rule does not take
  bool doubtful;         // what was taken for an operand is made of what the chain computes
  std::string reason;

  int nearness() const { return 2 * parts + right_operation - doubtful; }
};

// Whether the node's gradient is computed from its result.
bool needs_its_result(const Node* node);

std::variant<Match, Miss> match(const Chain& chain, const Linear& linear);

}  // namespace tailor
