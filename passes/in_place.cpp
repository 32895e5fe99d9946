#include "in_place.h"

#include <span>
#include <unordered_map>

namespace tailor {
namespace {

// What an in-place op writes to.
Value* written(const Node* node) { return seen(const_cast<Value*>(node->input(0))); }

// Whether whoever reads what the node has written may read its result instead.
bool returns_what_it_writes(const Node* node) {
  if (!is_in_place(node) || node->outputs().size() != 1 || node->inputs().empty()) return false;
  const Value* self = written(node);
  return is_tensor(self) && self->node()->kind() != c10::prim::GetAttr && self->node()->kind() != c10::prim::Param;
}

// The writers, in the order of their block, write to `value`: each reader of it is given the result of the last writer
// before. torch looks through all readers at every step, which is why the steps are halves.
void give_results(Value* value, std::span<Node* const> writers) {
  if (writers.empty()) return;
  const std::size_t half = writers.size() / 2;
  Node* writer = writers[half];
  value->replaceAllUsesDominatedByNodeWith(writer, writer->output());
  give_results(value, writers.first(half));
  give_results(writer->output(), writers.subspan(half + 1));
}

// The tensor that was written to first, of what is left of those that have been.
Value* origin_of(Value* result) {
  while (returns_what_it_writes(result->node())) result = written(result->node());
  return result;
}

// With what stands before and after a block's nodes: it gives and reads values, too.
std::vector<Node*> nodes_of(Block* top) {
  std::vector<Node*> all;
  for_each_block(top, [&](Block* block) {
    all.push_back(block->param_node());
    all.insert(all.end(), block->nodes().begin(), block->nodes().end());
    all.push_back(block->return_node());
  });
  return all;
}

}  // namespace

InPlaceResults::InPlaceResults(Block* top) : top_(top) {
  std::unordered_map<const Value*, Value*> origins;  // of results: what was written to first
  std::vector<std::vector<Node*>> writers;           // of one origin in one block; outer blocks come first
  for_each_block(top, [&](Block* block) {
    std::unordered_map<const Value*, std::size_t> places;
    for (Node* node : block->nodes()) {
      if (!returns_what_it_writes(node)) continue;
      Value* self = written(node);
      const auto known = origins.find(self);
      Value* origin = known == origins.end() ? self : known->second;
      origins[node->output()] = origin;
      const auto [place, is_first] = places.try_emplace(origin, writers.size());
      if (is_first) writers.emplace_back();
      writers[place->second].push_back(node);
    }
  });
  if (writers.empty()) return;

  std::unordered_set<const Value*> noted;
  const auto note_once = [&](Value* value) {
    if (noted.insert(value).second) note(value, value);
  };
  for (const auto& group : writers) {
    note_once(origins.at(group.front()->output()));
    for (Node* writer : group) note_once(writer->output());
  }
  for (const auto& group : writers)
    for (Node* writer : group)
      writer->output()->replaceAllUsesDominatedByNodeWith(writer, origins.at(writer->output()));
  for (const auto& group : writers) give_results(group.front()->input(0), group);

  for (Read& read : reads_) read.meanwhile = read.user->input(read.offset);
  std::erase_if(reads_, [](const Read& read) { return read.meanwhile == read.before; });
  if (reads_.empty()) return;
  const auto nodes = nodes_of(top);
  nodes_.insert(nodes.begin(), nodes.end());
}

// Whoever reads the value by way of prim::profile reads it itself meanwhile.
void InPlaceResults::note(Value* value, Value* passed_on) {
  const auto uses = passed_on->uses();
  for (const auto& use : uses) {
    reads_.push_back({use.user, use.offset, passed_on, nullptr});
    if (is_profile(use.user))
      note(value, use.user->output());
    else if (passed_on != value)
      use.user->replaceInput(use.offset, value);
  }
}

void InPlaceResults::give_back() const {
  if (reads_.empty()) return;
  const auto nodes = nodes_of(top_);
  const std::unordered_set<const Node*> left(nodes.begin(), nodes.end());
  std::unordered_set<const Value*> values;
  for (const Node* node : nodes) values.insert(node->outputs().begin(), node->outputs().end());
  const auto give = [&](Node* user, std::size_t offset, Value* before) {
    user->replaceInput(offset, values.contains(before) ? before : origin_of(user->input(offset)));
  };

  std::unordered_map<const Value*, Value*> of_chains;
  for (const Read& read : reads_) {
    if (left.contains(read.user))
      give(read.user, read.offset, read.before);
    else
      of_chains[read.meanwhile] = read.before;
  }
  for (Node* node : nodes) {
    if (nodes_.contains(node)) continue;
    for (std::size_t i = 0; i < node->inputs().size(); ++i)
      if (const auto found = of_chains.find(node->input(i)); found != of_chains.end()) give(node, i, found->second);
  }
}

}  // namespace tailor
