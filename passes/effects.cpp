#include "effects.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <unordered_set>

#include "calls.h"
#include "forks.h"

namespace tailor {
namespace {

using c10::Symbol;

const std::unordered_set<Symbol>& quiet_kinds() {
  static const std::unordered_set<Symbol> kinds = {c10::prim::Constant,
                                                   c10::prim::GetAttr,
                                                   c10::prim::ListConstruct,
                                                   c10::prim::TupleConstruct,
                                                   c10::prim::TupleIndex,
                                                   c10::prim::TupleUnpack,
                                                   c10::prim::profile,
                                                   c10::prim::unchecked_cast,
                                                   c10::prim::Uninitialized,
                                                   c10::prim::dtype,
                                                   c10::prim::device,
                                                   c10::prim::If,
                                                   c10::prim::Loop,
                                                   c10::aten::dim,
                                                   c10::aten::len,
                                                   c10::aten::__is__,
                                                   c10::aten::__isnot__,
                                                   c10::aten::__not__,
                                                   c10::prim::requires_grad,
                                                   c10::aten::__and__,
                                                   c10::aten::__or__,
                                                   c10::aten::eq,
                                                   c10::aten::ne,
                                                   c10::aten::lt,
                                                   c10::aten::le,
                                                   c10::aten::gt,
                                                   c10::aten::ge,
                                                   Symbol::aten("is_grad_enabled"),
                                                   Symbol::aten("is_autocast_enabled"),
                                                   Symbol::aten("is_autocast_cpu_enabled"),
                                                   Symbol::aten("get_autocast_dtype")};
  return kinds;
}

// Control flow, effects and contexts that are known to leave tensors alone.
const std::unordered_set<Symbol>& harmless_kinds() {
  static const std::unordered_set<Symbol> kinds = {c10::prim::Print,        c10::prim::RaiseException,
                                                   c10::prim::SetAttr,      c10::prim::DictConstruct,
                                                   c10::prim::CreateObject, c10::prim::ListUnpack,
                                                   c10::prim::Closure,      c10::prim::Return,
                                                   c10::prim::isinstance,   c10::prim::unchecked_unwrap_optional};
  return kinds;
}

bool works_on_tensors(const Node* node) { return std::any_of(node->inputs().begin(), node->inputs().end(), is_tensor); }

// Of what a chain computes and what is made of it, as far as it shows: a tensor without any has no length.
bool has_a_dimension(const Value* value, int steps = 8) {
  const Node* node = seen(const_cast<Value*>(value))->node();
  const auto is_one_of = [&](std::initializer_list<const char*> names) {
    return std::ranges::any_of(names, [&](const char* name) { return is_aten(node, name); });
  };
  if (is_given_its_result(node)) return false;
  if (is_one_of({"addmm", "mm", "batch_norm", "group_norm"})) return true;  // a linear of two vectors has none
  if (steps == 0 || !is_one_of({"add", "sub", "mul", "div", "sigmoid", "silu", "relu", "dropout"})) return false;
  return std::any_of(node->inputs().begin(), node->inputs().end(),
                     [&](const Value* input) { return is_tensor(input) && has_a_dimension(input, steps - 1); });
}

// What is quiet where it reads the ordinary: a place that a tuple has, a device that there is, a gradient that there is.
bool may_be_refused(const Node* node) {
  const auto is_known = [&](const Value* input) { return input->node()->kind() == c10::prim::Constant; };
  if (node->kind() == c10::prim::TupleIndex) return !is_known(node->input(1));
  if (is_aten(node, "get_autocast_dtype")) {
    const auto device = torch::jit::toIValue(node->input(0));
    return !device || !device->isString() || (device->toStringRef() != "cpu" && device->toStringRef() != "cuda");
  }
  return std::any_of(node->inputs().begin(), node->inputs().end(), [](const Value* input) {
    return is_tensor(input) && seen(const_cast<Value*>(input))->node()->kind() == c10::prim::grad;
  });
}

// Complex numbers have no order.
bool orders_complex_numbers(const Node* node) {
  static const std::unordered_set<Symbol> kinds = {c10::aten::lt, c10::aten::le, c10::aten::gt, c10::aten::ge};
  return kinds.contains(node->kind()) && std::any_of(node->inputs().begin(), node->inputs().end(), may_be_complex);
}

// `==` and its kin, also of lists: whose tensors they read.
bool compares_tensors(const Node* node) {
  static const std::unordered_set<Symbol> kinds = {c10::aten::eq, c10::aten::ne, c10::aten::lt,
                                                   c10::aten::le, c10::aten::gt, c10::aten::ge};
  return kinds.contains(node->kind()) &&
         std::any_of(node->inputs().begin(), node->inputs().end(),
                     [](const Value* input) { return may_hold_tensors(input->type()); });
}

// Of the class whose `with` block begins or ends there, if it is torch's own.
std::string name_of_torchs(const Node* node) {
  const auto type = node->input(0)->type()->cast<c10::ClassType>();
  const std::string name = type && type->name() ? type->name()->qualifiedName() : "";
  return name.starts_with("__torch__.torch.") ? name : "";
}

bool is_autocast(const Node* node) { return name_of_torchs(node).find("autocast") != std::string::npos; }

// Whether the node runs what is written elsewhere, and does not say so: who waits runs what was put off until then, or
// finds done what went on beside; and gradients have hooks.
bool runs_what_is_elsewhere(const Node* node) {
  static const std::unordered_set<Symbol> kinds = {c10::prim::PythonOp, c10::prim::awaitable_wait, c10::aten::wait,
                                                   c10::aten::grad};
  return kinds.contains(node->kind());
}

// Whether what runs beside can be seen to change nothing, no tensor, no attribute, no mode: then it is all the same when it
// runs. What it forks in its turn is not looked into: each fork and its wait would look, and at each depth twice as often.
bool only_reads(Graph& forked) {
  bool reads = true;
  for_each_block(forked.block(), [&](Block* block) {
    for (const Node* node : block->nodes())
      reads = reads && !forked_graph(node) && node->kind() != c10::prim::SetAttr && !changes_a_mode(node) &&
              !may_write(node);
  });
  return reads;
}

// Whether the node forks what only reads, or is the one that waits for it: of many, each would look at it anew.
bool forks_mere_reading(const Node* node) {
  if (node->kind() == c10::aten::wait) {
    const Value* future = seen(const_cast<Value*>(node->input(0)));
    if (readers(future).size() != 1) return false;
    node = future->node();
  }
  const auto forked = forked_graph(node);
  return forked && only_reads(*forked);
}

// aten::batch_norm and its kin write their statistics and do not say so.
bool is_statistic(const c10::Argument& argument) {
  return argument.name() == "running_mean" || argument.name() == "running_var";
}

// Nor does what an embedding with `max_norm` calls, whose name says it.
bool is_written_by_name(const Node* node, const c10::Argument& argument) {
  const bool is_first = &argument == node->schema().arguments().data();
  return is_first && (is_in_place(node) || is_aten(node, "_saturate_weight_to_fp16"));
}

bool is_written(const Node* node, const c10::Argument& argument) {
  if (argument.alias_info()) return argument.alias_info()->isWrite();
  return node->kind().is_aten() && (is_statistic(argument) || is_written_by_name(node, argument));
}

// For good: a `with` block of torch's own gives back what it has taken. What is put off is done in the mode of whoever waits.
bool leaves_a_mode(const Node* node) {
  if (node->kind() == c10::prim::awaitable) {
    const auto graph = forked_graph(node);
    return leaver_of_a_mode(graph->block(), unit_of(*graph)).has_value();
  }
  return changes_a_mode(node) && node->kind() != c10::prim::Enter && node->kind() != c10::prim::Exit;
}

bool leaves_modes(const Block* top) {
  bool found = false;
  for_each_block(const_cast<Block*>(top), [&](Block* block) {
    for (const Node* node : block->nodes()) found = found || leaves_a_mode(node);
  });
  return found;
}

}  // namespace

bool may_hold_tensors(const c10::TypePtr& type) {
  if (type->isSubtypeOf(*c10::TensorType::get()) || type->kind() == c10::TypeKind::AnyType) return true;
  return std::ranges::any_of(type->containedTypes(), may_hold_tensors);
}

bool is_noticeable(const Node* node) {
  if (is_aten(node, "len") && works_on_tensors(node) && !has_a_dimension(node->input(0))) return true;
  if (may_be_refused(node)) return true;
  const bool reads_whole_shape = is_shape_reader(node) && node->inputs().size() == 1;
  if (!quiet_kinds().contains(node->kind()) && !reads_whole_shape) return true;
  if (compares_tensors(node) || orders_complex_numbers(node)) return true;
  const bool reads_no_data =
      is_shape_reader(node) || node->kind() == c10::aten::__is__ || node->kind() == c10::aten::__isnot__;
  if (node->kind().is_aten() && !reads_no_data && works_on_tensors(node)) return true;
  for (const Block* block : node->blocks())
    for (const Node* inner : block->nodes())
      if (is_noticeable(inner)) return true;
  return false;
}

bool enters_autocast(const Node* node) { return node->kind() == c10::prim::Enter && is_autocast(node); }

bool leaves_autocast(const Node* node) { return node->kind() == c10::prim::Exit && is_autocast(node); }

bool changes_a_mode(const Node* node) {
  const std::string_view name = node->kind().toUnqualString();
  const bool asks = name.substr(0, 3) == "is_" || name.substr(0, 4) == "get_";
  return node->kind() == c10::prim::Enter || node->kind() == c10::prim::Exit ||
         (!asks &&
          (name.find("grad_enabled") != std::string_view::npos || name.find("autocast") != std::string_view::npos));
}

std::optional<Leaver> leaver_of_a_mode(Block* top, const std::shared_ptr<torch::jit::CompilationUnit>& unit) {
  Leads leads(leaves_modes, unit);
  std::optional<Leaver> found;
  for_each_block(top, [&](Block* block) {
    for (const Node* node : block->nodes())
      if (!found && (leaves_a_mode(node) || leads.from(node))) found = {node, leads.where()};
  });
  return found;
}

bool is_block_of_no_mode(const Node* node) {
  if (node->kind() != c10::prim::Enter && node->kind() != c10::prim::Exit) return false;
  return !is_autocast(node) && name_of_torchs(node).find(".grad_mode.") == std::string::npos;
}

bool moves_a_tensor(const Node* node) {
  return is_aten(node, "set") || is_aten(node, "set_data") || is_aten(node, "resize") || is_aten(node, "resize_as");
}

bool is_opaque(const Node* node) {
  if (quiet_kinds().contains(node->kind()) || harmless_kinds().contains(node->kind())) return false;
  if (forks_mere_reading(node)) return false;
  if (runs_what_is_elsewhere(node)) return true;
  const auto* op = node->maybeOperator();
  return op == nullptr || op->aliasAnalysisKind() == c10::AliasAnalysisKind::CONSERVATIVE;
}

std::vector<Written> written_by(Node* node) {
  std::vector<Written> result;
  const auto& arguments = node->schema().arguments();
  const auto is_write = [](const c10::AliasInfo& alias) { return alias.isWrite(); };
  for (std::size_t i = 0; i < arguments.size() && i < node->inputs().size(); ++i) {
    if (!is_written(node, arguments[i])) continue;
    const auto* alias = arguments[i].alias_info();
    const bool contents =
        alias && std::any_of(alias->containedTypes().begin(), alias->containedTypes().end(), is_write);
    result.push_back({node->input(i), contents});
  }
  return result;
}

bool writes(const Node* node) {
  const auto* schema = node->maybeSchema();
  if (!schema) return false;
  const auto training = schema->argumentIndexWithName("training");
  if (training && !schema->is_mutable() && is_constant_false(node->input(static_cast<std::size_t>(*training))))
    return false;
  return std::any_of(schema->arguments().begin(), schema->arguments().end(),
                     [&](const c10::Argument& argument) { return is_written(node, argument); });
}

bool has_effects(const Node* node) {
  return node->kind() == c10::prim::SetAttr || node->isNondeterministic() || writes(node);
}

bool may_write(const Node* node) { return writes(node) || is_opaque(node); }

}  // namespace tailor
