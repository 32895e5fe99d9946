#include "twins.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/node_hashing.h>

#include <algorithm>
#include <unordered_set>

#include "effects.h"
#include "unwritten.h"

namespace tailor {
namespace {

// What a chain reads, behind what the pass has put there to guard it; `checked` becomes what a check among that says.
Value* behind_guards(Value* value, std::optional<std::string>* checked = nullptr) {
  for (value = seen(value);;) {
    const Node* node = value->node();
    if (checked && is_tailor(node, "check")) {
      const auto spelling = torch::jit::toIValue(node->namedInput("spelling"));
      *checked = spelling && spelling->isString() ? spelling->toStringRef() : "";
      value = seen(node->input(0));
    } else if (Value* before = before_held(value)) {
      value = seen(before);
    } else {
      return value;
    }
  }
}

// Those of the op that the match becomes.
std::vector<Value*> arguments_of(const Match& match) {
  std::vector<Value*> arguments;
  for (std::size_t step = 0; step < match.arguments.size(); ++step) {
    const auto& of_step = match.arguments[step];
    constexpr std::size_t training = 4;  // and momentum behind it, which the op for inference has not
    const bool is_inference =
        match.chain->steps[step].kind == Step::Kind::batch_norm && is_constant_false(of_step[training]);
    for (std::size_t i = 0; i < of_step.size(); ++i)
      if (!is_inference || (i != training && i != training + 1)) arguments.push_back(of_step[i]);
  }
  return arguments;
}

bool is_written_in_place(const Match& match) {
  return std::any_of(match.parts.begin(), match.parts.end(), [](const Part& part) { return is_in_place(part.node); });
}

}  // namespace

// Equal for values that torch would make one of, or may; an object's attribute among them, wherever it is read.
class Twins::Numbers {
 public:
  explicit Numbers(Block* top) { read(top); }

  std::size_t of(const Value* value) {
    if (!value || is_none(value)) return 0;  // an argument that is left out
    const auto [found, is_new] = numbers_.try_emplace(behind_guards(const_cast<Value*>(value)), next_);
    if (is_new) ++next_;
    return found->second;
  }

 private:
  void read(Block* block) {
    for (Node* node : block->nodes()) {
      for (Block* inner : node->blocks()) read(inner);
      if (const Node* same = like(node))
        for (std::size_t i = 0; i < node->outputs().size(); ++i) numbers_[node->output(i)] = of(same->output(i));
    }
  }

  // The first node that computes what this one does; null where that is not known, or this is it.
  const Node* like(const Node* node) {
    if (node->kind() == c10::prim::Constant) {
      const auto [found, is_new] = constants_.insert(const_cast<Node*>(node));
      return is_new ? nullptr : *found;
    }
    const bool is_read = node->kind() == c10::prim::GetAttr;
    if (!node->blocks().empty() || (!is_read && node->numAttributes() > 0) || may_write(node)) return nullptr;
    std::vector<std::size_t> what{static_cast<c10::unique_t>(node->kind())};
    if (is_read) what.push_back(std::hash<std::string>()(node->s(c10::attr::name)));
    for (const Value* input : node->inputs()) what.push_back(of(input));
    const auto [found, is_new] = nodes_.try_emplace(std::move(what), node);
    return is_new ? nullptr : found->second;
  }

  std::size_t next_ = 1;
  std::unordered_map<const Value*, std::size_t> numbers_;
  std::unordered_set<Node*, torch::jit::HashNode, torch::jit::EqualNode> constants_;
  std::map<std::vector<std::size_t>, const Node*> nodes_;
};

Twins::Twins(Graph& graph) : graph_(graph) {
  for_each_block(graph.block(), [&](Block* block) {
    for (const Node* node : block->nodes()) changes_a_mode_ = changes_a_mode_ || changes_a_mode(node);
  });
}
Twins::~Twins() = default;

const Twins::Noted* Twins::find_or_keep(const Chain& chain, Noted noted) {
  OfChain& of_chain = noted_[&chain];
  const auto is_like = [&](const Noted& other) {
    return other.spelling == noted.spelling && !other.stays_two && !noted.stays_two;
  };
  const bool was_empty = of_chain.alike.empty() && of_chain.by_numbers.empty();
  if (was_empty || (!of_chain.alike.empty() && is_like(of_chain.alike.front()))) {
    of_chain.alike.push_back(std::move(noted));
    return nullptr;
  }
  if (!numbers_) numbers_ = std::make_unique<Numbers>(graph_.block());
  const auto key_of = [&](const Noted& each) {
    std::vector<std::size_t> key{each.turned ? std::size_t{1} : 0};
    for (const Value* argument : each.arguments) key.push_back(numbers_->of(argument));
    return Key{std::move(key), each.checked};
  };
  for (Noted& each : std::exchange(of_chain.alike, {})) of_chain.by_numbers.try_emplace(key_of(each), std::move(each));
  const auto [found, is_new] = of_chain.by_numbers.try_emplace(key_of(noted), noted);
  return is_new || is_like(found->second) ? nullptr : &found->second;
}

bool Twins::has_equal_ops() {
  if (changes_a_mode_) note_ops();
  return has_equal_ops_;
}

void Twins::note_ops() {
  if (std::exchange(knows_ops_, true)) return;
  for_each_block(graph_.block(), [&](Block* block) {
    for (Node* op : block->nodes()) {
      const Chain* chain = fused_chain(op);
      if (!chain) continue;
      std::vector<Value*> arguments = op->inputs().vec();
      std::optional<std::string> checked;
      arguments[0] = behind_guards(arguments[0], &checked);
      Node* const weight = behind_guards(arguments[1])->node();
      const bool turned = is_aten(weight, turn);
      if (turned) arguments[1] = weight->input();
      OfChain& all = noted_[chain];
      if (!all.first) all.first = op;
      if (!all.checked.insert(checked).second) has_equal_ops_ = true;
      if (!changes_a_mode_) find_or_keep(*chain, {std::move(arguments), turned, std::move(checked), "", op, true});
    }
  });
}

bool Twins::may_become_constant(Value* value) {
  if (!from_arguments_) from_arguments_ = std::make_unique<FromArguments>(graph_.block());
  return !from_arguments_->contains(behind_guards(value));
}

Twins::Apart Twins::apart(const Match& match, const Proof& proof) {
  note_ops();
  const bool has_check = std::any_of(proof.gaps.begin(), proof.gaps.end(), [](const Gap& gap) { return gap.check; });
  const auto checked = has_check ? std::optional(match.spelling) : std::nullopt;
  OfChain& all = noted_[match.chain];
  // Where modes change, whatever two ops read may turn out to be the same: nobody foresees all that torch sees through.
  const Node* other = all.first;
  if (!changes_a_mode_) {
    const Noted* twin = find_or_keep(*match.chain, {arguments_of(match), match.linear.turned, checked, match.spelling,
                                                    match.last(), is_written_in_place(match)});
    other = twin ? twin->last : nullptr;
  }
  if (!all.first) all.first = match.last();
  if (!other) {
    all.checked.insert(checked);
    return {};
  }
  if (may_become_constant(match.linear.input)) return {other, ""};
  for (std::size_t number = all.checked.size();; ++number) {
    const std::string word = "apart:" + std::to_string(number);
    if (all.checked.insert(with_word(match.spelling, word)).second) return {other, word};
  }
}

}  // namespace tailor
