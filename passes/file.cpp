#include "file.h"

#include <string>
#include <unordered_set>

#include "graph.h"
#include "pass.h"

namespace tailor {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

// What torch's printer says for loops, conditions, lists, conversions and some calls, and does not keep variables from being called.
bool is_word(const Value* value) {
  static const std::unordered_set<std::string> words{"range", "bool",  "annotate", "float",      "int",
                                                     "str",   "print", "sorted",   "isinstance", "torch"};
  return value->hasDebugName() && words.contains(value->debugNameBase());
}

}  // namespace

std::string hides_words(const Graph& graph) {
  for (const Value* input : graph.inputs())
    if (is_word(input))
      return "an argument is called `" + input->debugNameBase() +
             "`, which hides what a file of the fused method says so: call it otherwise";
  return "";
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
