// Makes a piece of a method of a chain and what disturbs it.
#pragma once
#include <optional>

#include "pass_disturb.h"

namespace tailor::fuzz {

// Lets a block's border cross the chain.
void add_border(Scope& scope, const Planted& planted, Disturbances& to);

// The chain with all of it.
Piece assembled(Scope& scope, const Planted& planted, const Disturbances& disturbances);

// The end of the chain in a method of its own, and the rest with the call of it.
struct Outline {
  Piece method, call;
};
// Nothing where the end needs more than the value.
std::optional<Outline> outlined_tail(Scope& scope, const Planted& planted);

}  // namespace tailor::fuzz
