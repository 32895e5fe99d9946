// Puts something before, into or after a chain: readers, views, writes, work of others. Each knows whether the chain must
// still be fused, by what README.md and docs/pass.md promise.
#pragma once
#include "pass_spell.h"

namespace tailor::fuzz {

struct Insertion {
  int after;  // the index of a statement; -1: before the chain
  std::vector<Piece> pieces;
};

struct Disturbances {
  std::vector<Insertion> inside;
  std::vector<Piece> afterwards;  // what reads the results of those, when the chain is over
  int border = -1;                // the statement after which the rest stands in a branch or a loop
  std::string border_header;
};

// Adds one. May do nothing where what was drawn does not fit.
void add_disturbance(Scope& scope, const Planted& planted, Disturbances& to);

}  // namespace tailor::fuzz
