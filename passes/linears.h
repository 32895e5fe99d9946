// A linear in a graph, however its author spelled it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "../ops/chain.h"
#include "graph.h"

namespace tailor {

// A linear in one of its spellings: aten::linear, linear(x, w) + b, addmm(b, x, w.t()), x @ w.t() and x @ w.t() + b. Where
// freezing has made a constant of w.t(), that is the matrix there is, and the weight is its transpose.
struct Linear {
  std::vector<Node*> nodes;  // the last one gives y
  Value* input = nullptr;
  Value* weight = nullptr;
  Value* bias = nullptr;      // null where there is none
  bool turned = false;        // `weight` is a constant matrix of which the op takes the transpose
  Node* transpose = nullptr;  // of the weight, where the spelling has one
  bool is_apart = false;      // it does not stand right before the product, which alone reads it

  Value* y() const { return nodes.back()->output(); }
};

// A matrix product is a linear where its right side is a transpose, or a constant that is a matrix: of that the transpose is
// known to be one. In a spelling that the pass has put away any constant stands for what was a transpose there.
enum class Right { transpose_or_matrix, transpose_or_constant };

// By which the pass transposes a constant matrix, and once more for the author's own spelling: the one transpose without
// arguments that has no twin which writes.
inline constexpr const char* turn = "numpy_T";

// The ways in which `node` begins a linear, the longest first; none where it does not.
std::vector<Linear> linears_at(Node* node, Right allowed = Right::transpose_or_matrix);

// A product with what the module holds, or with what was made of that, in a form that no rule takes: and why none does.
struct OtherLinear {
  Value* weight;
  std::string reason;
};
std::optional<OtherLinear> other_linear_at(Node* node);

// Which of the transposes that ops/reference.cpp names the node is; empty for anything else.
std::string transpose_of(const Node* node);

// Whether the node is plain a + b, a * b or a / b: no alpha, no rounding mode.
bool is_plain_arithmetic(const Node* node, Step::Kind kind);

}  // namespace tailor
