// What an author wrote, and how it is written again: a chain's formula, or the beginning of it, as ATen calls.
#pragma once
#include <string>
#include <vector>

#include "match.h"
#include "pass.h"

namespace tailor {

// What an author wrote: a chain, up to a step, with these arguments one step after the other.
struct Text {
  const Chain& chain;
  int last;
  std::vector<Value*> arguments;
  std::string spelling;
  bool norms = true;           // else a norm gives what it is given, whose shape is the same
  bool inference = false;      // its batch norm has neither a mode nor a momentum
  bool word_for_word = false;  // else a linear is a linear, and nothing is in place
};

// Writes the text's ATen calls before `place`, whose line they have as far as `unknown` allows.
std::vector<Part> write_out(Graph& graph, const Text& text, Node* place, UnknownLine unknown);

}  // namespace tailor
