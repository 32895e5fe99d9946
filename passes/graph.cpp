#include "graph.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "lines.h"

namespace tailor {
namespace {

// What a user would call a node for which the language has no name, without an article; empty for all others.
std::string_view plain_words(const Node* node) {
  static const std::unordered_map<c10::Symbol, std::string_view> words = {
      {c10::prim::TupleConstruct, "tuple"},
      {c10::prim::TupleUnpack, "unpacking of a tuple"},
      {c10::prim::TupleIndex, "index into a tuple"},
      {c10::prim::ListConstruct, "list"},
      {c10::prim::ListUnpack, "unpacking of a list"},
      {c10::prim::DictConstruct, "dict"},
      {c10::prim::CreateObject, "new object"},
      {c10::prim::GetAttr, "attribute"},
      {c10::prim::SetAttr, "assignment to an attribute"},
      {c10::prim::Constant, "constant"},
      {c10::prim::If, "`if`"},
      {c10::prim::Loop, "loop"},
      {c10::prim::Enter, "the beginning of a `with` block"},
      {c10::prim::Exit, "the end of a `with` block"},
      {c10::prim::RaiseException, "`raise`"},
      {c10::prim::PythonOp, "call of a Python function"},
      {c10::prim::CallFunction, "call of a function"},
      {c10::prim::CallMethod, "call of a method"},
      {c10::aten::__getitem__, "subscript"},
  };
  const auto found = words.find(node->kind());
  return found == words.end() ? std::string_view() : found->second;
}

std::string article(std::string_view noun, bool definite) {
  if (noun.starts_with("the ")) return "";
  if (definite) return "the ";
  const char first = noun[noun[0] == '`' ? 1 : 0];
  return std::string_view("aeiou").find(first) != std::string_view::npos ? "an " : "a ";
}

std::optional<c10::IValue> constant(const Value* value) {
  return torch::jit::toIValue(seen(const_cast<Value*>(value)));
}

void make_order_constant(Node* permute) {
  Node* list = permute->input(1)->node();
  if (list->kind() != c10::prim::ListConstruct || list->output()->uses().size() != 1) return;
  c10::List<std::int64_t> order;
  for (const Value* element : list->inputs()) {
    const auto dimension = torch::jit::toIValue(element);
    if (!dimension || !dimension->isInt()) return;
    order.push_back(dimension->toInt());
  }
  const torch::jit::WithInsertPoint here(permute);
  permute->replaceInput(1, permute->owningGraph()->insertConstant(order));
  list->destroy();
}

}  // namespace

std::shared_ptr<Graph> copy_of(Graph& graph) {
  constexpr int most_readers = 64;
  struct Copy {
    Value* value;
    int readers = 0;
  };
  std::unordered_map<const Value*, Copy> copies;
  auto result = std::make_shared<Graph>();
  const auto append = [&](Node* node, const auto& copy) { return result->appendNode(result->createClone(node, copy)); };
  const std::function<Value*(Value*)> copy = [&](Value* value) {
    Copy& found = copies.at(value);
    if (value->node()->kind() == c10::prim::Constant && ++found.readers > most_readers)
      found = {append(value->node(), copy)->output(), 1};
    return found.value;
  };
  for (Value* input : graph.inputs()) copies[input] = {result->addInput()->copyMetadata(input)};
  for (Node* node : graph.nodes()) {
    Node* clone = append(node, copy);
    for (std::size_t i = 0; i < node->outputs().size(); ++i) copies[node->output(i)] = {clone->outputs()[i]};
  }
  for (Value* output : graph.outputs()) result->registerOutput(copy(output));
  return result;
}

bool is_shape_reader(const Node* node) {
  return is_aten(node, "dim") || is_aten(node, "numel") || is_aten(node, "len") || is_aten(node, "size");
}

bool is_profile(const Node* node) {
  return node->kind() == c10::prim::profile && node->inputs().size() == 1 && node->outputs().size() == 1;
}

Value* seen(Value* value) {
  while (is_profile(value->node())) value = value->node()->input();
  return value;
}

std::vector<Node*> readers(const Value* value) {
  std::vector<Node*> result;
  for (const auto& use : value->uses()) {
    if (is_profile(use.user)) {
      const auto further = readers(use.user->output());
      result.insert(result.end(), further.begin(), further.end());
    } else {
      result.push_back(use.user);
    }
  }
  return result;
}

bool is_aten(const Node* node, std::string_view name) {
  if (!node->kind().is_aten()) return false;
  std::string_view kind = node->kind().toUnqualString();
  if (is_in_place(node)) kind.remove_suffix(1);
  return kind == name;
}

bool is_in_place(const Node* node) {
  const std::string_view kind = node->kind().toUnqualString();
  return node->kind().is_aten() && kind.ends_with('_') && !kind.ends_with("__");
}

bool is_given_its_result(const Node* node) {
  const auto* schema = node->maybeSchema();
  const auto place = schema ? schema->argumentIndexWithName("out") : std::nullopt;
  return place && static_cast<std::size_t>(*place) < node->inputs().size();
}

std::string overload(const Node* node) {
  const auto* schema = node->maybeSchema();
  return schema ? schema->overload_name() : "?";
}

bool is_ours(const Node* node) {
  static const c10::Symbol space = c10::Symbol::fromQualString("namespaces::tailor");
  return node->kind().ns() == space;
}

bool is_tailor(const Node* node, std::string_view name) {
  return is_ours(node) && name == node->kind().toUnqualString();
}

void make_orders_constant(Block* top) {
  for_each_block(top, [](Block* block) {
    for (Node* node : block->nodes())
      if (is_aten(node, "permute")) make_order_constant(node);
  });
}

const Chain* fused_chain(const Node* node) {
  const Chain* chain = find_chain(node->kind().toUnqualString());
  return chain && is_tailor(node, chain->name) ? chain : nullptr;
}

bool is_tensor(const Value* value) { return value->type()->isSubtypeOf(*c10::TensorType::get()); }

bool is_tensor_or_none(const Value* value) { return value->type()->isSubtypeOf(*c10::OptionalType::ofTensor()); }

bool may_be_complex(const Value* value) { return c10::ComplexType::get()->isSubtypeOf(*value->type()); }

bool is_none(const Value* value) { return value->type()->isSubtypeOf(*c10::NoneType::get()); }

bool is_constant_false(const Value* value) {
  const auto ivalue = constant(value);
  return ivalue && ivalue->isBool() && !ivalue->toBool();
}

bool is_constant_one(const Value* value) {
  const auto ivalue = constant(value);
  return ivalue && ivalue->isInt() && ivalue->toInt() == 1;
}

bool is_guarded(const Node* node) {
  return node->kind() == c10::prim::If && is_tailor(node->input()->node(), "uniform");
}

bool is_result(const Node* node) {
  if (node->kind() == c10::prim::Return) return true;
  if (node->kind() != c10::prim::TupleConstruct) return false;
  const auto& uses = node->output()->uses();
  return !uses.empty() &&
         std::all_of(uses.begin(), uses.end(), [](const auto& use) { return use.user->kind() == c10::prim::Return; });
}

std::string describe(const Node* node) {
  if (is_result(node))
    return node->owningBlock() == node->owningGraph()->block() ? "the method's result"
                                                               : "the result of a branch or loop";
  // What guards a chain that is fused already stands for the chain's first part.
  if ((is_tailor(node, "check") || is_tailor(node, "unwritten")) && node->outputs()[0]->hasUses())
    return describe(node->outputs()[0]->uses()[0].user);
  if (is_tailor(node, "as_silu")) return describe(node->input(0)->node());
  const std::string line = source_line(node);
  const std::string_view plain = plain_words(node);
  std::string text;
  if (plain.empty())
    text = "`" + std::string(node->kind().toUnqualString()) + "`";
  else
    text = article(plain, !line.empty()) + std::string(plain);
  if (!line.empty()) return text + " in " + line;
  if (const std::string chain = line_of_chain(node); !chain.empty())
    return text + " of the chain that begins in " + chain;
  // Of lists, and of questions like `y.dtype`, torch keeps no line; of what they are made for it does.
  if (!node->kind().is_prim() || node->outputs().size() != 1) return text;
  const auto all = readers(node->output());
  return all.size() != 1 ? text : text + " for " + describe(all.front());
}

std::string attribute_path(const Value* value) {
  const Node* node = value->node();
  if (node->kind() != c10::prim::GetAttr) return "";
  const Value* object = node->input();
  const std::string& name = node->s(c10::attr::name);
  const auto inputs = node->owningGraph()->inputs();
  if (!inputs.empty() && object == inputs[0]) return name;
  const std::string path = attribute_path(object);
  return path.empty() ? "" : path + "." + name;
}

std::string describe(const Value* value) {
  const auto quoted = [](const std::string& name) { return "`" + name + "`"; };
  if (const std::string path = attribute_path(value); !path.empty()) return quoted(path);
  if (value->hasDebugName()) {
    const std::string name = value->debugNameBase();
    // "_12" is what a saved file calls what its author gave no name.
    if (name.find_first_not_of("_0123456789") != std::string::npos) return quoted(name);
  }
  const Node* node = value->node();
  if (node->kind() == c10::prim::Constant) return "a constant";
  if (node->kind() == c10::prim::Param) return "an argument";
  return "the result of " + describe(node);
}

}  // namespace tailor
