// What a node of a graph does beside computing its result.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "graph.h"

namespace torch::jit {
struct CompilationUnit;
struct Function;
}  // namespace torch::jit

namespace tailor {

// Whether a value of that type may be a tensor, or hold one.
bool may_hold_tensors(const c10::TypePtr& type);

// Whether anybody can tell when the node runs: it may raise, write, print or take long for the user to see.
bool is_noticeable(const Node* node);

// Whether the node is the beginning, or the end, of a `with autocast` in the model itself.
bool enters_autocast(const Node* node);
bool leaves_autocast(const Node* node);

// Whether what follows the node may run in another mode than what is before it: with gradients, or under autocast.
bool changes_a_mode(const Node* node);

// The first node that does so for good, not only up to the end of a `with` block, or that may, as it leads to a function that does and
// that is not inlined there, `callee`; null where it is the node itself, or nobody knows which. `unit`: the classes that may stand
// behind an interface; where it is null, any may.
struct Leaver {
  const Node* node;
  const torch::jit::Function* callee;
};
std::optional<Leaver> leaver_of_a_mode(Block* top, const std::shared_ptr<torch::jit::CompilationUnit>& unit);

// Whether the node begins or ends a `with` block of another kind, torch's profiler or a class of the user's.
bool is_block_of_no_mode(const Node* node);

// Whether the node gives a tensor other memory: a look at the storages from before it says nothing of what is written
// afterwards.
bool moves_a_tensor(const Node* node);

// Whether we cannot see what the node does: a call that was not inlined, Python, a fork, an op that does not say what it
// writes. Of ATen's that is backward, which adds to gradients in place, and else only what asks for modes.
bool is_opaque(const Node* node);

// What a node writes to: a tensor, a list, or the tensors of a list, `Tensor(a!)[]`.
struct Written {
  Value* value;
  bool contents;
};
std::vector<Written> written_by(Node* node);

bool writes(const Node* node);

// Whether the node has an effect, be it that its schema says so or not: it writes to a tensor, to statistics, to an attribute or a list,
// or draws random numbers. torch does not know that it may not change places with all others, with what raises not in any case.
bool has_effects(const Node* node);

// Whether the node writes to a tensor, or does things that cannot be seen.
bool may_write(const Node* node);

}  // namespace tailor
