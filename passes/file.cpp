#include "file.h"

#include <torch/csrc/jit/ir/ir_views.h>

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "forks.h"
#include "graph.h"

namespace tailor {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// What torch's printer says for loops, conditions, lists, conversions and some calls, and does not keep variables from being called.
bool is_word(const std::string& name) {
  static const std::unordered_set<std::string> words{"range", "bool",  "annotate", "float",      "int",
                                                     "str",   "print", "sorted",   "isinstance", "torch"};
  return words.contains(name);
}

bool is_word(const Value* value) { return value->hasDebugName() && is_word(value->debugNameBase()); }

// Whether a file may say the word for the node. The words that are not here are said for lists, conditions and calls of all kinds.
bool says(Node* node, const std::string& word) {
  if (word == "range")
    return node->kind() == c10::prim::Loop && torch::jit::LoopView(node).loopType() == torch::jit::LoopView::For;
  static const std::unordered_map<std::string, c10::Symbol> only{
      {"int", c10::aten::Int},           {"float", c10::aten::Float},
      {"str", c10::Symbol::aten("str")}, {"sorted", c10::Symbol::aten("sorted")},
      {"print", c10::prim::Print},       {"isinstance", c10::prim::isinstance}};
  const auto found = only.find(word);
  return found == only.end() || node->kind() == found->second;
}

template <class Visitor>
void for_each_node(Block* top, const Visitor& visit) {
  for_each_block(top, [&](Block* block) {
    for (Node* node : block->nodes()) {
      visit(node);
      if (const auto forked = forked_graph(node)) for_each_node(forked->block(), visit);
    }
  });
}

bool says(Block* block, const std::string& word) {
  bool said = false;
  for_each_node(block, [&](Node* node) { said = said || says(node, word); });
  return said;
}

std::string hidden(const std::string& what, const std::string& word) {
  return what + " is called `" + word + "`, which hides what a file of the fused method says so: call it otherwise";
}

}  // namespace

std::string hides_words(Graph& graph) {
  for (const Value* input : graph.inputs())
    if (is_word(input) && says(graph.block(), input->debugNameBase()))
      return hidden("an argument", input->debugNameBase());
  std::string reason;
  std::unordered_set<std::string> asked;
  for_each_node(graph.block(), [&](const Node* node) {
    if (!reason.empty() || node->kind() != c10::prim::GetAttr) return;
    const std::string& name = node->s(c10::attr::name);  // and torch calls a variable so that holds it
    if (is_word(name) && asked.insert(name).second && says(graph.block(), name)) reason = hidden("an attribute", name);
  });
  return reason;
}

void rename_variables(Block* top) {
  const auto rename = [](Value* value) {
    if (is_word(value)) value->setDebugName(value->debugNameBase() + "_");
  };
  for_each_block(top, [&](Block* block) {
    if (block != top)
      for (Value* input : block->inputs()) rename(input);
    for (Node* node : block->nodes())
      for (Value* output : node->outputs()) rename(output);
  });
}

void drop_unread(Block* block) {
  for (auto node = block->nodes().rbegin(); node != block->nodes().rend(); ++node) {
    for (Block* inner : node->blocks()) drop_unread(inner);
    if (const auto forked = forked_graph(*node)) drop_unread(forked->block());
    const bool only_reads = node->kind() == c10::prim::Constant || node->kind() == c10::prim::GetAttr;
    if (only_reads && !node->hasUses()) node.destroyCurrent();
  }
}

}  // namespace tailor
