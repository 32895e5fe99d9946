#include "lines.h"

#include <dlfcn.h>
#include <torch/csrc/jit/ir/constants.h>

#include <filesystem>
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

// torch's, such as "<string>"; a cell of IPython's is somebody's own.
bool is_made_up(std::string_view file) { return file.starts_with('<') && !file.starts_with("<ipython-"); }
bool is_made_up(const SourceRange& range) {
  const auto place = range.file_line_col();
  return place && is_made_up(std::get<0>(*place));
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
  const bool is_a_file = !file.empty() && !is_made_up(file);  // a trace's calls of modules have none
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

c10::Symbol chain_line() { return c10::Symbol::attr("tailor_chain_line"); }

}  // namespace

void keep_line_of_chain(Node* node) {
  node->s_(chain_line(), source_line(node));
  node->setSourceRange({});
}

std::string line_of_chain(const Node* node) { return node->hasAttribute(chain_line()) ? node->s(chain_line()) : ""; }

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
  if (file.empty() || is_made_up(file)) return "";
  return short_name(file) + ":" + std::to_string(line);
}

bool has_users_line(const Node* node) {
  const Frames frames = frames_of(node);
  return is_users(frames.ranges[frames.users]);
}

bool is_torchs_own(const Node* node) {
  const auto place = original(node->sourceRange()).file_line_col();
  return place && is_torchs(std::get<0>(*place));
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

}  // namespace tailor
