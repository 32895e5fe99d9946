#include "prove.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "effects.h"

namespace tailor {
namespace {

// An attribute of all objects of a class, for a node that looks it up or assigns to it.
std::string attribute_of_class(const Node* node) {
  return node->input(0)->type()->annotation_str() + "." + node->s(c10::attr::name);
}

// Whether `value` can be had at `node`: it is defined before, or it is a constant, or an attribute, never assigned to, of an object
// that is.
bool is_available_at(const Value* value, const Node* node, const std::unordered_set<std::string>& assigned) {
  const Node* producer = value->node();
  if (node->isDominatedBy(producer) || producer->kind() == c10::prim::Constant) return true;
  return producer->kind() == c10::prim::GetAttr && !assigned.contains(attribute_of_class(producer)) &&
         is_available_at(producer->input(), node, assigned);
}

// A value of the same memory that can be had at `node`, where there is one: a look at that says as much.
Value* with_same_memory(Value* value, const Node* node, const std::unordered_set<std::string>& assigned, Views& views) {
  value = views.whole_of(value);
  while (value && !is_available_at(value, node, assigned)) {
    value = handed_on(value);
    if (value) value = views.whole_of(value);
  }
  return value && is_tensor(value) ? value : nullptr;
}

// Of the `if`s between the block and the writer the outermost whose condition can be had at `node`: without it nothing is written.
Value* condition_of(const Node* writer, const Block* block, const Node* node,
                    const std::unordered_set<std::string>& assigned) {
  Value* condition = nullptr;
  for (const Block* within = writer->owningBlock(); within != block; within = within->owningNode()->owningBlock()) {
    const Node* branch = within->owningNode();
    if (branch->kind() == c10::prim::If && branch->blocks()[0] == within &&
        is_available_at(branch->input(), node, assigned))
      condition = const_cast<Value*>(branch->input());
  }
  return condition;
}

bool has_opaque(const Node* node) {
  return is_opaque(node) || std::ranges::any_of(node->blocks(), [](const Block* block) {
           return std::any_of(block->nodes().begin(), block->nodes().end(), has_opaque);
         });
}

// Whether what is assigned is the attribute itself: `self.count += 1` writes in place, and assigns what is there. But what was there
// before somebody else's code ran, a fork's or a `with` block's, may be there no longer, and is then put back.
bool assigns_itself(const Node* assignment, Views& views) {
  Node* node = views.whole_of(assignment->input(1))->node();
  if (node->kind() != c10::prim::GetAttr || node->input() != assignment->input(0) ||
      node->s(c10::attr::name) != assignment->s(c10::attr::name) || node->owningBlock() != assignment->owningBlock())
    return false;
  while (node != assignment && !has_opaque(node)) node = node->next();
  return node == assignment;
}

bool is_norm(const Part& part) { return is_aten(part.node, "batch_norm") || is_aten(part.node, "group_norm"); }

void put_check(std::vector<Gap>& gaps, std::size_t part) {
  auto gap = std::find_if(gaps.begin(), gaps.end(), [&](const Gap& each) { return each.part >= part; });
  if (gap == gaps.end() || gap->part != part) gap = gaps.insert(gap, {part, false, {}});
  gap->check = true;
}

// The last of the parts that may raise before a norm, and where there is none, before the last part of all.
std::size_t last_to_check(const std::vector<Part>& parts) {
  const auto norm = static_cast<std::size_t>(std::find_if(parts.begin(), parts.end(), is_norm) - parts.begin());
  return std::min(norm, parts.size() - 1) - 1;
}

// Where the author wrote silu, a check says so: that tells unfuse, and raises what silu alone raises. Not where an If
// holds the spelling itself, nor where the last step is a silu: what then stands behind the op says and does as much.
void keep_silu(const Match& match, std::vector<Gap>& gaps) {
  if (match.needs_uniform() || match.ends_in_silu()) return;
  const auto& parts = match.parts;
  const auto is_silu = [](const Part& part) { return is_aten(part.node, "silu"); };
  if (std::none_of(parts.begin(), parts.end(), is_silu)) return;
  const std::size_t last = last_to_check(parts);
  std::size_t needed = last;
  while (needed > 0 && !is_silu(parts[needed])) --needed;
  const auto is_enough = [&](const Gap& gap) { return gap.check && gap.part >= needed && gap.part <= last; };
  if (std::none_of(gaps.begin(), gaps.end(), is_enough)) put_check(gaps, last);
}

// Of a chain that nobody reads torch drops all but the op, which writes statistics, as soon as it compiles a file: only a
// check can then say how the author wrote it.
void keep_spelling_of_unread(const Match& match, std::vector<Gap>& gaps) {
  const auto writes_statistics = [](const Part& part) { return is_aten(part.node, "batch_norm"); };
  if (match.spelling.empty() || !readers(match.last()->output()).empty() ||
      std::none_of(match.parts.begin(), match.parts.end(), writes_statistics))
    return;
  if (std::none_of(gaps.begin(), gaps.end(), [](const Gap& gap) { return gap.check; }))
    put_check(gaps, last_to_check(match.parts));
}

// Whether the value is a tensor that an attribute holds or a caller gave.
bool is_from_outside(const Value* value) {
  const Node* producer = seen(const_cast<Value*>(value))->node();
  const bool is_input =
      producer->kind() == c10::prim::Param && producer->owningBlock() == producer->owningGraph()->block();
  return (is_input || producer->kind() == c10::prim::GetAttr) && is_tensor_or_none(value) && !is_none(value);
}

}  // namespace

void tell_apart(Match& match, Proof& proof, const std::string& word) {
  match.spelling = with_word(match.spelling, word);
  if (std::none_of(proof.gaps.begin(), proof.gaps.end(), [](const Gap& gap) { return gap.check; }))
    put_check(proof.gaps, last_to_check(match.parts));
}

Surroundings::Surroundings(std::shared_ptr<Graph> graph) : graph_(std::move(graph)) { read(graph_->block()); }

void Surroundings::read(Block* block) {
  Row row;
  row.noticeable.push_back(0);
  for (Node* node : block->nodes()) {
    const std::size_t index = row.nodes.size();
    if (enters_autocast(node)) ++autocast_depth_;
    if (leaves_autocast(node)) --autocast_depth_;
    if (node->kind().is_aten() || !node->blocks().empty() || fused_chain(node))
      places_[node] = {index, autocast_depth_ > 0};
    row.nodes.push_back(node);
    row.noticeable.push_back(row.noticeable.back() + is_noticeable(node));
    const auto note = [&](Node* inner) {
      if (changes_a_mode(inner) || moves_a_tensor(inner) || is_opaque(inner)) row.barriers.push_back({index, inner});
      if (writes(inner)) row.writers.push_back({index, inner});
      if (inner->kind() == c10::prim::SetAttr && !assigns_itself(inner, views_))
        assigned_attributes_.insert(attribute_of_class(inner));
    };
    note(node);
    for (Block* inner : node->blocks()) {
      read(inner);
      const Row& below = rows_.at(inner);
      for (const Foreign& f : below.barriers) row.barriers.push_back({index, f.node});
      for (const Foreign& f : below.writers) row.writers.push_back({index, f.node});
    }
  }
  rows_[block] = std::move(row);
}

const Aliases& Surroundings::aliases() {
  if (!aliases_) aliases_ = std::make_unique<Aliases>(*graph_);
  return *aliases_;
}

std::variant<Proof, std::string> Surroundings::prove(const Match& match) {
  const Row& row = rows_.at(match.last()->owningBlock());
  if (places_.at(match.last()).under_autocast)
    return "it stands inside `with autocast`, which TorchScript carries out by casting the inputs of ops that it knows";
  // It raises where it stands, and shows what the weight was there, in the mode of there; the op reads it as it is later. Nor may
  // a node be put between the transpose and each product: torch makes one of two equal ones, also across no_grad.
  if (match.linear.is_apart)
    return describe(match.linear.transpose) + ", the weight's transpose, stands apart from the product";
  Proof proof;
  bool norm_is_done = false;
  for (std::size_t i = 0; i + 1 < match.parts.size(); ++i) {
    const Part& part = match.parts[i];
    norm_is_done = norm_is_done || is_norm(part);
    const std::size_t begin = places_.at(part.node).index + 1;
    const std::size_t end = places_.at(match.parts[i + 1].node).index;
    Gap gap{i, false, {}};

    const auto in_gap = [&](const Foreign& f) { return f.index >= begin && f.index < end; };
    const auto first_after = [&](const std::vector<Foreign>& all) {
      return std::lower_bound(all.begin(), all.end(), begin,
                              [](const Foreign& f, std::size_t b) { return f.index < b; });
    };
    const auto barrier = first_after(row.barriers);
    if (barrier != row.barriers.end() && in_gap(*barrier))
      return describe(barrier->node) + " stands inside the chain and " +
             (is_block_of_no_mode(barrier->node) ? "may tell the parts inside the block from the others"
              : changes_a_mode(barrier->node)    ? "changes the mode in which it runs"
              : moves_a_tensor(barrier->node)    ? "gives a tensor other memory"
                                                 : "may do anything");

    const bool noticeable = row.noticeable[end] > row.noticeable[begin];
    const auto first_noticeable = [&] {
      return std::find_if(row.nodes.begin() + static_cast<std::ptrdiff_t>(begin), row.nodes.end(), is_noticeable);
    };
    if (noticeable && norm_is_done)
      return describe(*first_noticeable()) + " stands between the norm and " + describe(match.parts[i + 1].node) +
             ", so that the norm's statistics or error would come too late";
    if (noticeable && part.done < 0) return describe(*first_noticeable()) + " stands between the product and its bias";
    const auto reads_shape = [&](const ShapeReader& reader) { return reader.value == part.node->output(); };
    gap.check = noticeable || std::any_of(match.shape_readers.begin(), match.shape_readers.end(), reads_shape);

    for (auto writer = first_after(row.writers); writer != row.writers.end() && in_gap(*writer); ++writer)
      if (std::string reason = prove_writer(match, part, writer->node, gap); !reason.empty()) return reason;
    if (gap.check || !gap.written.empty()) proof.gaps.push_back(std::move(gap));
  }
  keep_silu(match, proof.gaps);
  keep_spelling_of_unread(match, proof.gaps);
  return proof;
}

// Whether a foreign node after `part` can harm what the parts so far have read. Collects the tensors that it writes and
// that only a look at the storages, at run time, can tell from the operands.
std::string Surroundings::prove_writer(const Match& match, const Part& part, Node* writer, Gap& gap) {
  torch::jit::ValueSet read;
  for (int step = 0; step <= part.done; ++step)
    for (Value* argument : match.arguments[static_cast<std::size_t>(step)])
      if (argument && is_tensor_or_none(argument)) read.insert(argument);
  const std::vector<Written> all_written = written_by(writer);
  const auto may_be_read = [&](const Written& written) {
    return std::any_of(read.begin(), read.end(), [&](const Value* r) {
      return written.contents ? aliases().may_contain(written.value, r) : aliases().may_alias(written.value, r);
    });
  };
  const auto written_from_outside = [](const Written& written) { return is_from_outside(written.value); };
  // For torch any two tensors from outside may be the same one: that need not be asked, and most graphs ask no more.
  const bool both_from_outside = std::any_of(all_written.begin(), all_written.end(), written_from_outside) &&
                                 std::any_of(read.begin(), read.end(), is_from_outside);
  if (!both_from_outside && !aliases().writes_to(writer, read) &&
      std::none_of(all_written.begin(), all_written.end(), may_be_read))
    return "";

  for (const auto& [written, contents] : all_written) {
    Value* held = with_same_memory(written, part.node, assigned_attributes_, views_);
    if (match.linear.transpose && seen(written)->node() == match.linear.transpose)
      return describe(writer) + " writes to the weight's transpose, which the chain has read";
    for (const Value* operand : read) {
      if (views_.share_memory(written, operand))
        return describe(writer) + " writes to " + describe(seen(const_cast<Value*>(operand))) +
               ", which the chain has read";
    }
    if (is_none(written)) continue;
    if (contents || !held) return describe(writer) + " may write to an operand of the chain";
    gap.written.push_back({held, condition_of(writer, part.node->owningBlock(), part.node, assigned_attributes_)});
  }
  return "";
}

}  // namespace tailor
