#include "twins.h"

#include <torch/csrc/jit/ir/node_hashing.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "prove.h"

namespace tailor {

// Equal for values that torch would make one of, or may; an object's attribute among them, wherever it is read.
class Twins::Numbers {
 public:
  explicit Numbers(Block* top) { read(top); }

  std::size_t of(const Value* value) {
    if (!value || value->type()->isSubtypeOf(*c10::NoneType::get())) return 0;  // an argument that is left out
    const auto [found, is_new] = numbers_.try_emplace(seen(const_cast<Value*>(value)), next_);
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
    std::pair<std::string, Key> what(node->kind().toQualString(), {});
    if (is_read) what.first += "." + node->s(c10::attr::name);
    for (const Value* input : node->inputs()) what.second.push_back(of(input));
    const auto [found, is_new] = nodes_.try_emplace(std::move(what), node);
    return is_new ? nullptr : found->second;
  }

  std::size_t next_ = 1;
  std::unordered_map<const Value*, std::size_t> numbers_;
  std::unordered_set<Node*, torch::jit::HashNode, torch::jit::EqualNode> constants_;
  std::map<std::pair<std::string, Key>, const Node*> nodes_;
};

Twins::Twins(Graph& graph) : graph_(graph) {}
Twins::~Twins() = default;

Twins::Key Twins::key_of(const std::vector<Value*>& arguments, bool turned) {
  if (!numbers_) numbers_ = std::make_unique<Numbers>(graph_.block());
  Key key{turned ? std::size_t{1} : 0};
  for (const Value* argument : arguments) key.push_back(numbers_->of(argument));
  return key;
}

bool Twins::note(Node* op, const Chain& chain) {
  std::vector<Value*> arguments = op->inputs().vec();
  Node* const weight = seen(arguments[1])->node();
  const bool turned = is_aten(weight, turn);
  if (turned) arguments[1] = weight->input();
  return noted_.try_emplace({&chain, key_of(arguments, turned)}, Noted{std::nullopt, op}).second;
}

const Node* Twins::note(const Match& match) {
  std::vector<Value*> arguments;
  for (std::size_t step = 0; step < match.arguments.size(); ++step) {
    const auto& of_step = match.arguments[step];
    constexpr std::size_t training = 4;  // and momentum behind it, which the op for inference has not
    const bool is_inference =
        match.chain->steps[step].kind == Step::Kind::batch_norm && is_constant_false(of_step[training]);
    for (std::size_t i = 0; i < of_step.size(); ++i)
      if (!is_inference || (i != training && i != training + 1)) arguments.push_back(of_step[i]);
  }
  const auto [found, is_new] =
      noted_.try_emplace({match.chain, key_of(arguments, match.linear.turned)}, Noted{match.spelling, match.last()});
  if (is_new) return nullptr;
  // What was written in the same way torch makes one of by itself; but not what is written in place.
  const auto is_written = [](const Part& part) { return is_in_place(part.node); };
  const bool is_one_anyway =
      found->second.spelling == match.spelling && std::none_of(match.parts.begin(), match.parts.end(), is_written);
  return is_one_anyway ? nullptr : found->second.last;
}

}  // namespace tailor
