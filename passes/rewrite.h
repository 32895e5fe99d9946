// Replaces a proven match by the fused op.
#pragma once
#include "prove.h"
#include "specimen.h"

namespace tailor {

inline c10::Symbol op_symbol(const Chain& chain) {
  return c10::Symbol::fromQualString("tailor::" + std::string(chain.name));
}

struct Proven {
  Match match;
  Proof proof;
};

// Puts each op where its chain's last part stood and destroys the parts. A match that needs_uniform becomes
//
//   if tailor::uniform(…): the op    else: the parts as they were
void rewrite(Graph& graph, const std::vector<Proven>& all);

// Where torch has frozen a fused graph, training has become a constant. An op that then never writes its statistics says
// so from now on, so that they can be folded too, and where no one writes nothing need be held against it.
bool settle_after_freezing(Graph& graph);  // whether it changed anything

void destroy_if_unused(Node* node);  // with the lists and constants made for it

// The site taken out, before it is rewritten.
Specimen take_specimen(const Match& match);

}  // namespace tailor
