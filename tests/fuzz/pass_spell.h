// Writes one chain down in one of its spellings, statement by statement, or with one thing about it that is another formula.
#pragma once
#include "pass_scope.h"

namespace tailor::fuzz {

// What is known about the place after a statement of a chain, where others may write something.
struct Gap {
  std::string value;  // the variable that holds the chain's value so far; empty where it has no name
  bool before_bias = false;
  bool after_norm = false;
  std::size_t read = 0;  // how many of Planted::operands the chain has read
};

struct Operand {
  std::string path;       // "self.w1", "self.gemm2.weight" or a local name
  bool computed = false;  // the chain reads something made of it
};

struct Statement {
  std::string line;
  bool is_site = false;  // the linear stands in it
  Gap gap;               // after it
};

struct Planted {
  int chain = 0;
  std::vector<std::string> setup;  // before it
  std::vector<Statement> statements;
  std::vector<Operand> operands;  // in the order in which they are read
  std::string input, result;
};

// The rules whose chains are planted, sorted.
std::vector<std::string> planted_rules();

// A chain over `input`, a variable with `in` features. Notes it in the model.
Planted spell(Scope& scope, const std::string& input, std::int64_t in, const std::string& other_input,
              std::int64_t other_in, bool twisted);

// The chain is no longer what it was: notes why.
void disturb(Chain& chain, Fate fate, const std::string& what);

}  // namespace tailor::fuzz
