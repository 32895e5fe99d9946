// What a picture of a graph shows: a box for each op on tensors, an arrow for each tensor that goes from one to another.
// Weights, numbers and what is computed from shapes are text inside the boxes that read them.
#pragma once
#include <memory>
#include <string>
#include <vector>

namespace torch::jit {
struct Graph;
}

namespace tailor::tool {

struct Box {
  enum class Kind { end, linear, op, fused, helper, control };  // helper: an op of ours that is no chain
  Kind kind;
  std::string title;
  std::vector<std::string> lines;  // operands that are no arrows
};

struct Arrow {
  std::size_t from, to;  // positions in Flow::boxes, from < to
  std::string label;     // the value's name, where its author gave it one
};

struct Flow {
  std::vector<Box> boxes;  // in the order in which they run
  std::vector<Arrow> arrows;
  std::size_t ops = 0;     // boxes that do work, also those that were left out
  std::size_t hidden = 0;  // boxes left out
};

// The graph must be inlined; its first input is the module.
Flow flow_of(const std::shared_ptr<torch::jit::Graph>& graph, std::size_t most_boxes);

// At most `width` characters, the last one an ellipsis where it was longer. Counts UTF-8 characters, not bytes.
std::string shorten(const std::string& text, std::size_t width);
std::size_t characters(const std::string& text);

}  // namespace tailor::tool
