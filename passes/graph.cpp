#include "graph.h"

#include <dlfcn.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <sstream>
#include <unordered_map>

namespace tailor {
namespace {

using torch::jit::InlinedCallStack;
using torch::jit::InlinedCallStackPtr;
using torch::jit::SourceRange;

// torch can give a node another call stack and not take it away. See plans.cpp.
std::optional<InlinedCallStackPtr>& call_stack_of(Node& node);
template <std::optional<InlinedCallStackPtr> Node::*stack>
struct Reveal {
  friend std::optional<InlinedCallStackPtr>& call_stack_of(Node& node) { return node.*stack; }
};
template struct Reveal<&Node::callstack_>;

// A loaded file's code is generated; the file remembers what from.
SourceRange original(const SourceRange& range) {
  const auto source = range.findSourceRangeThatGenerated();
  return source ? *source : range;
}

bool is_made_up(const SourceRange& range) {
  const auto place = range.file_line_col();
  return place && std::get<0>(*place).rfind('<', 0) == 0;
}

// Where the torch is installed that runs: libtorch is in torch/lib/.
const std::string& packages() {
  static const auto* found = [] {
    Dl_info here{};
    const bool known = dladdr(reinterpret_cast<const void*>(&torch::jit::toIValue), &here) != 0 && here.dli_fname;
    const std::filesystem::path library = known ? here.dli_fname : "";
    return new std::string(library.lexically_normal().parent_path().parent_path().parent_path().string() + "/");
  }();
  return *found;
}

// Whether the file is `name`, or in it where that is a folder, and torch's: of the torch that runs, of one on the machine on
// which a file was made, or in such a file. That others have a torch/nn/ too is no wonder.
bool is_torchs(std::string_view file, std::string_view name) {
  for (auto at = file.find(name); at != std::string_view::npos; at = file.find(name, at + 1)) {
    const std::string_view before = file.substr(0, at);
    if (before.empty() || before == packages()) return true;
    for (const char* folder : {"/site-packages/", "/dist-packages/", "code/__torch__/"})
      if (before.ends_with(folder)) return true;
  }
  return false;
}

// `2.0 / x` is a method of torch's Tensor in a trace.
bool is_torchs(std::string_view file) { return is_torchs(file, "torch/nn/") || is_torchs(file, "torch/_tensor.py"); }

// Whether the range is in somebody's own file: not in torch.nn, not in code that torch makes up.
bool is_users(const SourceRange& range) {
  const auto place = original(range).file_line_col();
  if (!place) return false;
  const std::string& file = std::get<0>(*place);
  const bool is_a_file = !file.empty() && file[0] != '<';  // a trace's calls of modules have none
  return is_a_file && !is_torchs(file) && !is_made_up(range);
}

std::string short_name(const std::string& file) { return file.substr(file.find_last_of('/') + 1); }

// A tracer writes down the stack of Python as if it were the source: "/home/me/net.py(30): forward", innermost first.
// Returns the user's line in it, empty where there is none before the call of the tracer.
std::string traced_line(const SourceRange& range) {
  std::istringstream stack(range.text().str());
  for (std::string frame; std::getline(stack, frame);) {
    const auto end = frame.find("): ");
    const auto begin = frame.rfind('(', end);
    if (end == std::string::npos || begin == std::string::npos) break;
    const std::string file = frame.substr(0, begin);
    if (is_torchs(file, "torch/jit/")) break;
    if (!is_torchs(file)) return short_name(file) + ":" + frame.substr(begin + 1, end - begin - 1);
  }
  return "";
}

// The frames through which the node was inlined, outermost first, itself last; and which of them is the user's own line.
struct Frames {
  std::vector<const InlinedCallStack*> calls;  // the node's own
  std::vector<SourceRange> ranges;
  std::size_t users;
  bool lost = false;  // where a call within the user's line was nobody knows: the line may be that of his caller
};

// A file has no place for calls of some functions, F.silu among them; the calls of a trace have none anyway.
bool has_place(const SourceRange& range) {
  const auto place = original(range).file_line_col();
  return place && !std::get<0>(*place).empty();
}

Frames frames_of(const Node* node) {
  Frames frames;
  if (const auto stack = node->callstack(); stack && *stack)
    for (std::optional<InlinedCallStackPtr> call = *stack; call; call = (*call)->callee())
      frames.calls.push_back(call->get());
  for (const auto* call : frames.calls) frames.ranges.push_back(call->source_range());
  frames.ranges.push_back(node->sourceRange());
  frames.users = frames.ranges.size() - 1;
  for (std::size_t i = frames.ranges.size(); i-- > 0 && !frames.lost;) {
    if (is_users(frames.ranges[i])) {
      frames.users = i;
      break;
    }
    frames.lost = i < frames.calls.size() && !has_place(frames.ranges[i]);
  }
  return frames;
}

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

Value* seen(Value* value) {
  while (value->node()->kind() == c10::prim::profile && value->node()->inputs().size() == 1)
    value = value->node()->input();
  return value;
}

std::vector<Node*> readers(const Value* value) {
  std::vector<Node*> result;
  for (const auto& use : value->uses()) {
    if (use.user->kind() == c10::prim::profile && use.user->outputs().size() == 1) {
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

std::string overload(const Node* node) {
  const auto* schema = node->maybeSchema();
  return schema ? schema->overload_name() : "?";
}

bool is_tailor(const Node* node, std::string_view name) {
  static const c10::Symbol space = c10::Symbol::fromQualString("namespaces::tailor");
  return node->kind().ns() == space && name == node->kind().toUnqualString();
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

bool is_constant_false(const Value* value) {
  const auto ivalue = constant(value);
  return ivalue && ivalue->isBool() && !ivalue->toBool();
}

bool is_constant_one(const Value* value) {
  const auto ivalue = constant(value);
  return ivalue && ((ivalue->isInt() && ivalue->toInt() == 1) || (ivalue->isDouble() && ivalue->toDouble() == 1.0));
}

std::string source_line(const Node* node) {
  const Frames frames = frames_of(node);
  SourceRange range = frames.ranges[frames.users];
  // `2.0 * x` is a function of torch's own script, inlined without a trace, and `2.0 / x` one of two nodes; the last of what
  // the author gave it has his line.
  if (is_made_up(range)) {
    std::size_t last = 0;
    const auto look = [&](const Node* made_up) {
      for (const Value* input : made_up->inputs()) {
        const Frames of_input = frames_of(input->node());
        const SourceRange& given = of_input.ranges[of_input.users];
        if (!is_users(given)) continue;
        const std::size_t line = std::get<1>(*original(given).file_line_col());
        if (line < last) continue;
        last = line;
        range = given;
      }
    };
    look(node);
    if (node->outputs().size() == 1)
      for (const Node* reader : readers(node->output()))
        if (is_made_up(reader->sourceRange())) look(reader);
  }
  const auto place = original(range).file_line_col();
  if (!place) return "";
  const auto& [file, line, column] = *place;
  if (!is_users(range))
    if (std::string traced = traced_line(original(range)); !traced.empty()) return traced;
  if (frames.lost) return "";
  if (file.empty() || file[0] == '<') return "";
  return short_name(file) + ":" + std::to_string(line);
}

bool has_users_line(const Node* node) {
  const Frames frames = frames_of(node);
  return is_users(frames.ranges[frames.users]);
}

void take_user_line(Node* node, const Node* from) {
  const Frames frames = frames_of(from);
  node->setScope(const_cast<Node*>(from)->scope());
  node->setSourceRange(frames.ranges[frames.users]);
  InlinedCallStackPtr stack;
  for (std::size_t i = frames.users; i-- > 0;) {
    const InlinedCallStack& call = *frames.calls[i];
    std::string name = call.function_name();  // not asked of the function, which freezing may have destroyed
    const auto [function, range, instance] = std::tuple(call.function(), call.source_range(), call.module_instance());
    stack = stack ? c10::make_intrusive<InlinedCallStack>(stack, function, range, instance, name)
                  : c10::make_intrusive<InlinedCallStack>(function, range, instance, name);
  }
  call_stack_of(*node) = stack ? std::optional(stack) : std::nullopt;
}

void keep_user_lines(Block* top) {
  struct Line {
    bool is_users = false;
    SourceRange range;
    std::optional<InlinedCallStackPtr> callers;
  };
  std::unordered_map<const InlinedCallStack*, Line> lines;  // nodes of one call share their frames
  std::vector<InlinedCallStackPtr> alive;
  for_each_block(top, [&](Block* block) {
    for (Node* node : block->nodes()) {
      const auto stack = node->callstack();
      if (!stack || !*stack || is_users(node->sourceRange())) continue;
      const auto [known, is_new] = lines.try_emplace(stack->get());
      Line& line = known->second;
      if (is_new) {
        alive.push_back(*stack);
        const Frames frames = frames_of(node);
        line.is_users = frames.users + 1 < frames.ranges.size();
        if (line.is_users) {
          take_user_line(node, node);
          line.range = node->sourceRange();
          line.callers = node->callstack();
        }
      } else if (line.is_users) {
        node->setSourceRange(line.range);
        call_stack_of(*node) = line.callers;
      }
    }
  });
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
