#include "flow.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "../passes/unwritten.h"

namespace tailor::tool {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;

constexpr std::size_t line_width = 44;
constexpr std::size_t most_lines = 5;
constexpr std::size_t longest_text = 100;  // more than any line shows

// Infix spellings of what is computed from shapes and flags.
constexpr std::array<std::pair<std::string_view, std::string_view>, 18> infix{{
    {"aten::eq", "=="},
    {"aten::ne", "!="},
    {"aten::lt", "<"},
    {"aten::le", "<="},
    {"aten::gt", ">"},
    {"aten::ge", ">="},
    {"aten::add", "+"},
    {"aten::sub", "-"},
    {"aten::mul", "*"},
    {"aten::div", "/"},
    {"aten::floordiv", "//"},
    {"aten::remainder", "%"},
    {"aten::__and__", "and"},
    {"aten::__or__", "or"},
    {"aten::__is__", "is"},
    {"aten::__isnot__", "is not"},
    {"aten::__contains__", "has"},
    {"aten::pow", "**"},
}};

// What gives back its first operand: casts that only say something about a type, and what runs loops ahead.
bool transparent(const Node* node) {
  const std::string_view kind = node->kind().toQualString();
  return kind == "tailor::ahead" || kind == "tailor::held" || kind == "prim::unchecked_cast" ||
         kind == "prim::unchecked_unwrap_optional" || kind == "aten::_unwrap_optional";
}

// What a value is handed on from as it is; also by the pass's guard that an operand shares no memory with what is written before the
// fused op reads it. Null for any other.
const Value* handed_on_from(const Value* value) {
  if (const Value* held = before_held(const_cast<Value*>(value))) return held;
  return transparent(value->node()) ? value->node()->input(0) : nullptr;
}

// Numbers, flags, strings, and lists of them: no arrow is drawn for these.
bool plain(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::DeviceObjType:
      return true;
    case c10::TypeKind::ListType:
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::TupleType: {
      const auto inner = type->containedTypes();
      return std::all_of(inner.begin(), inner.end(), plain);
    }
    default:
      return false;
  }
}

bool is_fused(const Node* node) { return std::string_view(node->kind().ns().toUnqualString()) == "tailor"; }

bool is_chain(const Node* node) { return std::string_view(node->kind().toQualString()).starts_with("tailor::linear_"); }

bool in_text(const Node* node);

// `a and b` reaches the graph as a branch that gives a flag.
bool is_expression(const Node* node) {
  if (node->kind() != c10::prim::If || node->outputs().size() != 1 || !plain(node->output()->type())) return false;
  return std::all_of(node->blocks().begin(), node->blocks().end(), [](const Block* block) {
    return std::all_of(block->nodes().begin(), block->nodes().end(), in_text);
  });
}

// Shown as text inside its readers, not as a box.
bool in_text(const Node* node) {
  if (is_expression(node) || holds_unwritten(const_cast<Node*>(node))) return true;
  if (node->kind() == c10::prim::GetAttr || node->kind() == c10::prim::Constant || transparent(node)) return true;
  if (node->kind() == c10::prim::ListConstruct || node->kind() == c10::prim::TupleConstruct) return true;
  if (is_fused(node) || !node->blocks().empty() || node->outputs().empty() || node->hasSideEffects()) return false;
  if (const auto* schema = node->maybeSchema(); schema && schema->is_mutable()) return false;
  return std::all_of(node->outputs().begin(), node->outputs().end(),
                     [](const Value* output) { return plain(output->type()); });
}

// `x` of `x.5`; nothing for names that torch numbered itself.
std::string author_name(const Value* value) {
  if (!value->hasDebugName()) return "";
  const auto name = value->debugNameBase();
  return name.find_first_not_of("0123456789") == std::string::npos ? "" : name;
}

std::string constant(const c10::IValue& value) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    if (!tensor.defined()) return "None";
    std::ostringstream text;
    if (tensor.dim() == 0)
      text << tensor.item();
    else
      text << "constant" << tensor.sizes();
    return text.str();
  }
  if (value.isNone()) return "None";
  if (value.isBool()) return value.toBool() ? "True" : "False";
  if (value.isDouble()) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", value.toDouble());
    return text;
  }
  if (value.isObject()) return "object";
  std::ostringstream text;
  text << value;
  return text.str();
}

class Builder {
 public:
  explicit Builder(std::size_t most_boxes) : most_boxes_(most_boxes) {}

  Flow build(torch::jit::Graph& graph) {
    for (std::size_t i = 1; i < graph.inputs().size(); ++i) {
      const auto* input = graph.inputs()[i];
      add({Box::Kind::end, author_name(input).empty() ? "input" : author_name(input), {}}, {}, {input});
    }
    for (const Node* node : graph.nodes())
      if (!in_text(node)) add(node);
    // The result is always shown: of the boxes that are, one place is its own.
    ++most_boxes_;
    add({Box::Kind::end, "output", {}}, {graph.outputs().begin(), graph.outputs().end()}, {});
    return std::move(flow_);
  }

 private:
  bool hides() {
    if (flow_.boxes.size() < most_boxes_) return false;
    ++flow_.hidden;
    return true;
  }

  void add(const Node* node) {
    ++flow_.ops;
    if (hides()) return;
    std::vector<const Value*> reads(node->inputs().begin(), node->inputs().end());
    Box box{Box::Kind::op, node->kind().toUnqualString(), {}};
    if (!node->blocks().empty()) {
      box.kind = Box::Kind::control;
      describe_blocks(node, box);
      for (const auto* block : node->blocks()) captured(block, reads);
      if (holds_chain(node)) box.kind = Box::Kind::fused;
    } else {
      if (is_fused(node))
        box = {is_chain(node) ? Box::Kind::fused : Box::Kind::helper, node->kind().toQualString(), {}};
      if (box.title == "linear" || box.title == "addmm") box.kind = Box::Kind::linear;
      if (node->kind() == c10::prim::RaiseException) box.kind = Box::Kind::control;
      if (node->kind() == c10::prim::SetAttr) box = {Box::Kind::control, "self." + node->s(c10::attr::name) + " =", {}};
      describe_operands(node, box);
    }
    add(std::move(box), reads, {node->outputs().begin(), node->outputs().end()});
  }

  void add(Box box, const std::vector<const Value*>& reads, const std::vector<const Value*>& writes) {
    if (hides()) return;
    const std::size_t self = flow_.boxes.size();
    std::map<std::size_t, std::string> sources;
    for (const auto* value : reads) find_sources(value, sources);
    for (const auto& [from, label] : sources) flow_.arrows.push_back({from, self, label});
    flow_.boxes.push_back(std::move(box));
    for (const auto* value : writes) made_by_[value] = self;
  }

  // The boxes that a value comes from, through what is shown as text.
  void find_sources(const Value* value, std::map<std::size_t, std::string>& sources) const {
    std::vector<const Value*> open{value};
    std::set<const Value*> seen;
    while (!open.empty()) {
      const auto* next = open.back();
      open.pop_back();
      if (!seen.insert(next).second) continue;
      if (const auto found = made_by_.find(next); found != made_by_.end()) {
        sources.emplace(found->second, author_name(next));
      } else if (const Value* before = handed_on_from(next)) {
        open.push_back(before);
      } else if (in_text(next->node())) {
        for (const auto* input : next->node()->inputs()) open.push_back(input);
        std::vector<const Value*> inner;
        for (const auto* block : next->node()->blocks()) captured(block, inner);
        open.insert(open.end(), inner.begin(), inner.end());
      }
    }
  }

  static bool holds_box(const Block* block) {
    return !std::all_of(block->nodes().begin(), block->nodes().end(), in_text);
  }

  static bool holds_chain(const Node* node) {
    return is_chain(node) || std::any_of(node->blocks().begin(), node->blocks().end(), [](const Block* block) {
             return std::any_of(block->nodes().begin(), block->nodes().end(), holds_chain);
           });
  }

  static void captured(const Block* block, std::vector<const Value*>& reads) {
    for (const Node* node : block->nodes()) {
      reads.insert(reads.end(), node->inputs().begin(), node->inputs().end());
      for (const auto* inner : node->blocks()) captured(inner, reads);
    }
    reads.insert(reads.end(), block->outputs().begin(), block->outputs().end());
  }

  // A value as its author would write it. Deep and long expressions end in an ellipsis: a list of lists of lists may be short in the
  // graph and longer than any memory written out.
  std::string text(const Value* value, int depth = 0) const { return shorten(whole_text(value, depth), longest_text); }

  std::string whole_text(const Value* value, int depth) const {
    const Node* node = value->node();
    if (node->kind() == c10::prim::Constant) {
      const auto known = torch::jit::toIValue(value);
      return known ? constant(*known) : "constant";
    }
    if (node->kind() == c10::prim::GetAttr) {
      const auto owner = node->input()->node()->kind() == c10::prim::GetAttr ? text(node->input(), depth) + "." : "";
      return owner + node->s(c10::attr::name);
    }
    if (const Value* before = handed_on_from(value)) return text(before, depth);
    if (!in_text(node) || node->kind() == c10::prim::Param) {
      const auto name = author_name(value);
      if (!name.empty()) return name;
      return node->kind() == c10::prim::Param ? "value" : node->kind().toUnqualString();
    }
    if (depth > 4) return "…";
    if (node->kind() == c10::prim::If) return choice(node, depth);
    const auto operand = [&](std::size_t i) { return text(node->input(i), depth + 1); };
    const std::string_view kind = node->kind().toQualString();
    for (const auto& [op, sign] : infix)
      if (kind == op && node->inputs().size() >= 2) return operand(0) + " " + std::string(sign) + " " + operand(1);
    if (kind == "aten::__not__") return "not " + operand(0);
    if (kind == "aten::__getitem__") return operand(0) + "[" + operand(1) + "]";
    std::string list;
    for (std::size_t i = 0; i < node->inputs().size() && characters(list) <= longest_text; ++i)
      list += (i ? ", " : "") + operand(i);
    if (kind == "prim::ListConstruct") return "[" + list + "]";
    if (kind == "prim::TupleConstruct") return "(" + list + ")";
    return std::string(node->kind().toUnqualString()) + "(" + list + ")";
  }

  std::string choice(const Node* node, int depth) const {
    const auto condition = text(node->input(), depth + 1);
    const auto yes = text(node->blocks()[0]->outputs()[0], depth + 1);
    const auto no = text(node->blocks()[1]->outputs()[0], depth + 1);
    if (no == "False") return condition + " and " + yes;
    if (yes == "True") return condition + " or " + no;
    return yes + " if " + condition + " else " + no;
  }

  bool arrow_only(const Value* value) const {
    if (const Value* before = handed_on_from(value)) return arrow_only(before);
    return made_by_.contains(value) || !in_text(value->node());
  }

  // Weights by their path; numbers and flags as name=value where they are no defaults.
  void describe_operands(const Node* node, Box& box) const {
    const auto* schema = node->maybeSchema();
    std::vector<std::string> words;
    for (std::size_t i = 0; i < node->inputs().size(); ++i) {
      const auto* input = node->input(i);
      if (words.size() > most_lines * line_width) break;  // nobody sees the rest
      if (arrow_only(input) || input->type()->kind() == c10::TypeKind::ClassType) continue;
      const bool number = plain(input->type());
      const auto known = torch::jit::toIValue(input);
      if (known && (known->isNone() || box.kind == Box::Kind::helper)) continue;
      std::string word = text(input);
      if (word == "[]") continue;
      if (schema && i < schema->arguments().size()) {
        const auto& argument = schema->arguments()[i];
        if (argument.name() == "cudnn_enabled") continue;  // true for everybody
        if (known && argument.default_value() && constant(*known) == constant(*argument.default_value())) continue;
        if (number && argument.name() != "other") word = argument.name() + "=" + word;
      }
      words.push_back(shorten(word, line_width));
    }
    wrap(words, box.lines);
  }

  void describe_blocks(const Node* node, Box& box) const {
    if (node->kind() == c10::prim::If) {
      box.title = "if " + shorten(text(node->input()), line_width + 8);
      const std::array<std::string, 2> branches{summary(node->blocks()[0]), summary(node->blocks()[1])};
      if (!branches[0].empty()) box.lines.push_back(branches[0]);
      if (!branches[1].empty()) box.lines.push_back("else: " + branches[1]);
      return;
    }
    const bool loop = node->kind() == c10::prim::Loop;
    box.title = loop ? "loop" : std::string(node->kind().toUnqualString());
    for (const auto* block : node->blocks()) {
      auto line = summary(block);
      if (loop && !holds_box(block)) line = node->outputs().empty() ? "" : "computes " + text(node->output(0));
      if (!line.empty()) box.lines.push_back(std::move(line));
    }
  }

  std::string summary(const Block* block) const {
    std::vector<std::string> ops;
    std::size_t count = 0;
    const std::function<void(const Block*)> visit = [&](const Block* inner) {
      for (const Node* node : inner->nodes()) {
        if (!node->blocks().empty()) {
          for (const auto* nested : node->blocks()) visit(nested);
        } else if (!in_text(node)) {
          ++count;
          std::string name = is_fused(node) ? node->kind().toQualString() : node->kind().toUnqualString();
          if (node->kind() == c10::prim::RaiseException) name = "raise";
          if (std::find(ops.begin(), ops.end(), name) == ops.end()) ops.push_back(name);
        }
      }
    };
    visit(block);
    std::string line;
    for (const auto& op : ops) line += (line.empty() ? "" : ", ") + op;
    if (line.empty() && !block->outputs().empty()) line = text(block->outputs()[0]);
    if (count > 3) line += " (" + std::to_string(count) + " ops)";
    return shorten(line, line_width);
  }

  static void wrap(const std::vector<std::string>& words, std::vector<std::string>& lines) {
    for (const auto& word : words) {
      if (!lines.empty() && characters(lines.back()) + 2 + characters(word) <= line_width) {
        lines.back() += ", " + word;
      } else if (lines.size() == most_lines) {
        lines.back() = shorten(lines.back() + ", …", line_width + 3);
        return;
      } else {
        lines.push_back(word);
      }
    }
  }

  std::size_t most_boxes_;
  Flow flow_;
  std::unordered_map<const Value*, std::size_t> made_by_;
};

}  // namespace

Flow flow_of(const std::shared_ptr<torch::jit::Graph>& graph, std::size_t most_boxes) {
  return Builder(most_boxes).build(*graph);
}

std::size_t characters(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string shorten(const std::string& text, std::size_t width) {
  if (characters(text) <= width) return text;
  std::size_t bytes = 0, seen = 0;
  while (bytes < text.size()) {
    const bool starts = (static_cast<unsigned char>(text[bytes]) & 0xC0) != 0x80;
    if (starts && ++seen == width) break;
    ++bytes;
  }
  return text.substr(0, bytes) + "…";
}

}  // namespace tailor::tool
