// What torch's passes would drop because nobody reads it, and that does something all the same: it draws random numbers, or it writes
// to a tensor. The statistics of a batch norm, whose schema does not say that they are written; or what a schema says is new, and is
// the very tensor that was given.
//
// torch's executor drops it too, but not in the first call, nor where it does not optimise: a graph of the author's keeps it.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

namespace tailor {

// Between these two everything of that kind has a reader, of which torch believes that it can be noticed.
void keep_unread_effects(torch::jit::Block* top);
void let_go_of_unread_effects(torch::jit::Block* top);

}  // namespace tailor
