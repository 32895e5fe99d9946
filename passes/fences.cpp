#include "fences.h"

#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>

#include "effects.h"
#include "forks.h"
#include "match.h"

namespace tailor {
namespace {

const c10::Symbol fence = c10::Symbol::fromQualString("tailor::fence");

// Of all kinds of operators only a conservative one counts as having effects.
const torch::jit::RegisterOperators operators({torch::jit::Operator(
    "tailor::fence() -> ()", [](torch::jit::Stack&) {}, c10::AliasAnalysisKind::CONSERVATIVE)});

bool is_fence(const Node* node) { return node->kind() == fence; }

bool must_stay(const Node* node) { return fused_chain(node) || is_tailor(node, "check") || has_effects(node); }

// visit(node) for each past which nothing may be moved, or which has such a one in it; what it forks is in it too. Whether there was any.
template <class Visit>
bool for_each_that_stays(Block* block, const Visit& visit) {
  bool any = false;
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* const node = *it++;
    bool stays = must_stay(node);
    for (Block* inner : node->blocks()) stays |= for_each_that_stays(inner, visit);
    if (const auto forked = forked_graph(node)) stays |= for_each_that_stays(forked->block(), visit);
    if (stays) visit(node);
    any |= stays;
  }
  return any;
}

// A branch of which torch has taken all but the fences.
bool is_empty_branch(Node* node) {
  const auto is_empty = [](Block* block) { return block->nodes().begin() == block->nodes().end(); };
  return node->kind() == c10::prim::If && node->outputs().empty() && std::ranges::all_of(node->blocks(), is_empty);
}

void destroy_with_its_question(Node* branch) {
  Node* const asks = branch->input()->node();
  branch->destroy();
  if (is_tailor(asks, "uniform") && !asks->hasUses()) asks->destroy();
}

// Whether there was any.
bool drop_in(Block* block) {
  bool dropped = false;
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* const node = *it++;
    bool had_any = is_fence(node);
    for (Block* inner : node->blocks()) had_any |= drop_in(inner);
    if (const auto forked = forked_graph(node)) drop_in(forked->block());
    if (is_fence(node))
      node->destroy();
    else if (had_any && is_empty_branch(node))
      destroy_with_its_question(node);
    dropped |= had_any;
  }
  return dropped;
}

}  // namespace

void add_fences(Block* top) {
  for_each_that_stays(top, [](Node* node) {
    const auto make = [&] {
      Node* const made = node->owningGraph()->create(fence, 0);
      made->setSourceRange(node->sourceRange());
      return made;
    };
    if (!is_fence(node->prev())) make()->insertBefore(node);
    if (!is_fence(node->next())) make()->insertAfter(node);
  });
}

void drop_fences(Block* top) { drop_in(top); }

bool lacks_fences(Block* top) {
  bool lacks = false;
  for_each_that_stays(top, [&](Node* node) { lacks = lacks || !is_fence(node->prev()) || !is_fence(node->next()); });
  return lacks;
}

}  // namespace tailor
