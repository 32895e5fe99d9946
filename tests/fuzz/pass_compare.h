// Compares what two sides have done.
#pragma once
#include "pass_run.h"

namespace tailor::fuzz {

struct Done {
  const Side& side;
  const Outcome& outcome;
};

struct Terms {
  bool gradients = true;  // else no call has any
  // A file is compiled, and torch then drops a write to what nobody reads any more, in graphs with calls inlined, and a
  // refusal with it. Nor does a file know which tensors share a version counter.
  bool from_file = false;
  // This call has gone back through what was written to unseen by a version counter: eager's gradient is of old values and
  // of new ones, as it has kept this or that.
  bool gradients_may_differ = false;
  bool zeros_for_none = false;    // a gradient of zeros is as good as none
  bool any_error = false;         // where both sides raise, it need not be the same
  bool may_say_it_wants = false;  // a gradient, and then has none
  // torch's executor moves writes past what raises, when it gathers what has gradients: what a call that raises had written
  // before is then another thing than the graph says, and what it computes afterwards too.
  bool writes_may_move = false;
  bool forks = false;        // something runs beside
  bool values_only = false;  // neither who wants a gradient nor the gradients
};

// What the fused side did otherwise than the plain one in this call; empty if nothing. `exact`, where the model's type is
// not float64: the plain side in float64, from which neither may be further away than the other.
std::string difference(const Model& model, const Done& plain, const Done& fused, const Done* exact, const Terms& terms);

}  // namespace tailor::fuzz
