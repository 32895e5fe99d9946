#include "file.h"

#include <torch/csrc/jit/ir/ir_views.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "forks.h"
#include "graph.h"
#include "lines.h"
#include "wide_tuples.h"

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

// Numbers, strings and the like, and what is made of them alone.
bool is_unwritable(const c10::TypePtr& type) {
  constexpr c10::TypeKind whole[] = {c10::TypeKind::IntType,    c10::TypeKind::FloatType,    c10::TypeKind::BoolType,
                                     c10::TypeKind::NoneType,   c10::TypeKind::StringType,   c10::TypeKind::ComplexType,
                                     c10::TypeKind::NumberType, c10::TypeKind::DeviceObjType};
  if (std::find(std::begin(whole), std::end(whole), type->kind()) != std::end(whole)) return true;
  const bool is_made_of = type->kind() == c10::TypeKind::TupleType || type->kind() == c10::TypeKind::UnionType ||
                          type->kind() == c10::TypeKind::OptionalType;
  const auto parts = type->containedTypes();
  return is_made_of && std::all_of(parts.begin(), parts.end(), is_unwritable);
}

// A constant of that type is what torch makes of it wherever it reads such a file, and then finds that there are none.
bool is_none_for_a_union(const Node* node) {
  return node->kind() == c10::prim::unchecked_cast && node->input()->mustBeNone() &&
         node->output()->type()->kind() == c10::TypeKind::UnionType && is_unwritable(node->output()->type());
}

}  // namespace

std::string fits_no_file(Graph& graph) {
  for (const Value* input : graph.inputs())
    if (is_word(input) && says(graph.block(), input->debugNameBase()))
      return hidden("an argument", input->debugNameBase());
  std::string reason;
  std::unordered_set<std::string> asked;
  for_each_node(graph.block(), [&](Node* node) {
    if (!reason.empty()) return;
    if (reads_tuples_not_to_be_widened(node))
      reason = "a tuple of the method's may hold a complex number or a device, and torch fails over two equal ones";
    if (is_none_for_a_union(node))
      reason = "None is given for a " + node->output()->type()->annotation_str() + " in " + source_line(node) +
               ", which torch could not read back from a file once the call is inlined";
    if (node->kind() != c10::prim::GetAttr) return;
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
