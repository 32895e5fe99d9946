// What a graph has to be like for a file of it to be read again, once code of others was inlined into it.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <string>

namespace tailor {

// Why a file of the graph might not be read again; empty where nothing stands in the way. Arguments and attributes that
// are called like a word that files say keep their names, and hide the word; and what torch makes of None for a union of numbers it
// does not know itself.
std::string fits_no_file(torch::jit::Graph& graph);

// Gives other names to variables that are called like such words.
void rename_variables(torch::jit::Block* block);

// Drops constants and attributes that lost their last reader when the graph was rewritten. Torch's own passes drop them now and then, and a
// trace that was checked against one in which they are still there would differ.
void drop_unread(torch::jit::Block* block);

}  // namespace tailor
