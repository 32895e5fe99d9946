// A few words for talking about TorchScript graphs.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../ops/chain.h"

namespace tailor {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// A copy in which no constant has many readers: torch takes a reader off a value by looking through all that it has, so that
// taking nodes away, thousands of which share a `1`, would cost time that grows with the square of the graph.
std::shared_ptr<Graph> copy_of(Graph& graph);

// Whether the node passes on what it reads, and no more. The executor's graphs have one at every turn.
bool is_profile(const Node* node);

// The value itself, where `value` is what prim::profile passes on of it.
Value* seen(Value* value);

// The nodes that read `value`, prim::profile looked through; one that reads it twice is there twice.
std::vector<Node*> readers(const Value* value);

// `aten::mul`, or with `name` "mul" also its in-place twin `aten::mul_`.
bool is_aten(const Node* node, std::string_view name);
bool is_in_place(const Node* node);
bool is_given_its_result(const Node* node);  // the tensor for it, `out`
std::string overload(const Node* node);

// Whether the node asks a tensor for no more than its shape.
bool is_shape_reader(const Node* node);

bool is_tensor(const Value* value);          // and never None
bool is_tensor_or_none(const Value* value);  // or may be either
bool may_be_complex(const Value* value);     // a number, that is
bool is_none(const Value* value);            // by its type
bool is_constant_false(const Value* value);
bool is_constant_one(const Value* value);

// The order of each permute(w, [1, 0]), which torch, and a file, take for a list that may change.
void make_orders_constant(Block* top);

// Whether the node is an op of ours, whether it is the named one, and the chain that it runs if it is a fused op, else null.
bool is_ours(const Node* node);
bool is_tailor(const Node* node, std::string_view name);
const Chain* fused_chain(const Node* node);

// The If that the pass made around a chain in another spelling: the op, and else what was written.
bool is_guarded(const Node* node);

// Whether the node returns what it reads from the method, a branch or a loop, alone or in a tuple.
bool is_result(const Node* node);

// What a person would call the node: "`mul` in net.py:31", "the loop in net.py:31".
std::string describe(const Node* node);

// The path of an attribute from the graph's first input: "gemm.weight"; empty for anything else.
std::string attribute_path(const Value* value);

// What a value is called where a person reads about it: "`gemm.weight`" for an attribute, "`y`" for a variable, else
// "the result of `add` in net.py:31".
std::string describe(const Value* value);

// Visits every block of a block, itself first, those of forked graphs not among them.
template <class Visitor>
void for_each_block(Block* block, Visitor&& visit) {
  visit(block);
  for (Node* node : block->nodes())
    for (Block* inner : node->blocks()) for_each_block(inner, visit);
}

}  // namespace tailor
