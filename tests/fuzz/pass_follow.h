// Makes the calls of a model on two sides.
#pragma once
#include <functional>
#include <optional>

#include "pass_compare.h"
#include "pass_judge.h"

namespace tailor::fuzz {

// Plain sides besides the one that is compared, each where it can say something.
struct Referees {
  std::optional<Side> exact;  // in float64
  // Sees every write, where the two sides do not: what it refuses to go back through has no gradient to agree about.
  std::optional<Side> knows;
  // Calls at once what the model forks. torch's executor runs a fork, and may wait for it after the next has begun: then
  // they race, unfused as well.
  std::function<Side()> without_forks;
};

// Makes the calls on both sides, one after the other; what differs first.
std::string follow(const Model& model, const Without& without, Side& plain, Side& fused, Referees& referees,
                   Terms terms, Tally& tally);

}  // namespace tailor::fuzz
