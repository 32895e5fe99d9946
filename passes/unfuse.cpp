// Gives a graph back without Tailor's ops: each becomes its formula's ATen calls, and what stood guard for it goes.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "author.h"
#include "forks.h"
#include "lines.h"
#include "match.h"
#include "order.h"
#include "pass.h"
#include "rewrite.h"
#include "unwritten.h"
#include "wide_tuples.h"

namespace tailor {
namespace {

using torch::jit::WithInsertPoint;

Text text_of_op(Node* op, const Chain& chain, std::string spelling) {
  const bool inference = op->schema().overload_name().rfind("inference", 0) == 0;
  return {chain, chain.last(), op->inputs().vec(), std::move(spelling), true, inference};
}

// The checks whose input the chain passes on, the first in the graph first.
std::vector<Node*> checks_before(Value* input) {
  std::vector<Node*> checks;
  for (Node* node = input->node(); is_tailor(node, "check"); node = node->input(0)->node()) checks.push_back(node);
  return {checks.rbegin(), checks.rend()};
}

std::string text_of(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isString() ? constant->toStringRef() : "";
}

// How the author wrote the chain, which each of its checks knows; the formula's own way where there is none, or a file says
// so in no way of ours.
std::string spelling_of(const std::vector<Node*>& checks) {
  return checks.empty() ? "" : text_of(checks.back()->namedInput("spelling"));
}

// The first operands that a check reads, by name or, in older files, in a list, which freezing makes a constant; a number, of which
// no shape depends, for each that is none.
std::vector<Value*> operands_of(Graph& graph, Node* check, std::size_t count) {
  std::vector<Value*> values;
  const auto add = [&](Value* value) {
    if (values.size() == count) return;
    values.push_back(is_none(value) ? graph.insertConstant(1.0) : value);
  };
  if (const auto first = check->schema().argumentIndexWithName("first")) {
    for (Value* value : check->inputs().slice(static_cast<std::size_t>(*first))) add(value);
    return values;
  }
  Value* list = check->namedInput("operands");
  if (list->node()->kind() == c10::prim::ListConstruct) {
    for (Value* value : list->node()->inputs()) add(value);
  } else if (const auto constant = torch::jit::toIValue(list); constant && constant->isList()) {
    for (const c10::IValue& value : constant->toListRef())
      add(graph.insertConstant(value.isTensor() ? value : c10::IValue(1.0)));
  }
  return values;
}

// What a check says of the chain's first steps. Nothing where a file says so in no way of ours.
std::optional<Text> text_of_check(Graph& graph, Node* check) {
  const Chain* chain = find_chain(text_of(check->namedInput("chain")));
  const auto last = torch::jit::toIValue(check->namedInput("last"));
  if (!chain || !last || !last->isInt() || last->toInt() < 0 || last->toInt() > chain->last()) return std::nullopt;
  Text text{*chain,
            static_cast<int>(last->toInt()),
            {check->input(0), check->input(1), check->input(2)},
            text_of(check->namedInput("spelling")),
            false,
            false};
  const WithInsertPoint here(check);
  const auto is_operand = [](const Step& step) { return step.is_operand(); };
  const auto steps = chain->steps.begin() + 1;
  const auto count = static_cast<std::size_t>(std::count_if(steps, steps + text.last, is_operand));
  const auto operands = operands_of(graph, check, count);
  if (operands.size() < count) return std::nullopt;
  text.arguments.insert(text.arguments.end(), operands.begin(), operands.end());
  return text;
}

// Moves the node and the constants that it reads, where all that it reads is there already.
bool move_before(Node* place, Node* node) {
  const auto is_there = [&](const Value* input) {
    const auto kind = input->node()->kind();
    return kind == c10::prim::Constant || kind == c10::prim::Param || place->isDominatedBy(input->node());
  };
  if (!std::all_of(node->inputs().begin(), node->inputs().end(), is_there)) return false;
  for (Value* input : node->inputs())
    if (input->node()->kind() == c10::prim::Constant && place->isBefore(input->node()))
      input->node()->moveBefore(place);
  node->moveBefore(place);
  return true;
}

// Moves the parts to where the checks say that they stood, and gives shape readers the values themselves.
void undo_checks(const std::vector<Part>& parts, const std::vector<Node*>& checks) {
  for (Node* check : checks) check->output(0)->replaceAllUsesWith(check->input(0));
  for (Node* check : checks) {
    const auto step = torch::jit::toIValue(check->namedInput("last"));
    const std::int64_t last = step && step->isInt() ? step->toInt() : -1;
    const auto is_last = [&](const Part& part) { return part.done == last; };
    // Its line is that of the part before it. Where a sigmoid follows the linear that may be either; the linear has the op's.
    const bool may_be_either = std::count_if(parts.begin(), parts.end(), is_last) > 1;
    Value* value = nullptr;
    for (const Part& part : parts) {
      if (part.done > last) break;
      if (check->isBefore(part.node) && !move_before(check, part.node)) break;  // no check of ours
      if (!is_last(part)) continue;
      if (value || !may_be_either) part.node->copyMetadata(check);
      if (!value) value = part.node->output();
    }
    if (value) check->output(1)->replaceAllUsesWith(value);
    destroy_if_unused(check);
  }
}

// A constant that the pass turned to make a weight of it, and turned back for the author's spelling, is itself again.
void turn_back(Block* top) {
  std::vector<Node*> turns;
  for_each_block(top, [&](Block* block) {
    for (Node* node : block->nodes())
      if (is_aten(node, turn)) turns.push_back(node);
  });
  const auto is_turned_constant = [](Node* node) {
    return is_aten(node, turn) && node->input()->node()->kind() == c10::prim::Constant;
  };
  for (Node* node : turns)
    if (Node* before = node->input()->node(); is_turned_constant(before))
      node->output()->replaceAllUsesWith(before->input());
  for (auto node = turns.rbegin(); node != turns.rend(); ++node)
    if (!(*node)->hasUses()) (*node)->destroy();
}

void move_before(Node* place, Block* from) {
  const std::vector<Node*> nodes(from->nodes().begin(), from->nodes().end());
  for (Node* node : nodes) node->moveBefore(place);
}

// The parts of the chain as its author spelled it, within the If that rewrite() made; nothing where freezing has taken some of them out,
// or made others of them.
std::vector<Part> spelled_in(Block* spelled, const Chain& chain) {
  for (Node* node : spelled->nodes())
    for (const Linear& linear : linears_at(node, Right::transpose_or_constant)) {
      auto found = match(chain, linear);
      auto* whole = std::get_if<Match>(&found);
      if (!whole || whole->last()->output() != spelled->outputs()[0]) continue;
      if (linear.transpose) whole->parts.insert(whole->parts.begin(), {linear.transpose, -1});
      return whole->parts;
    }
  return {};
}

// A file may say that the pass's If has more results.
bool is_choice(const Node* node) { return is_guarded(node) && node->outputs().size() < 2; }

class Unfuser {
 public:
  Unfuser(Graph& graph, std::vector<Site>& sites, const std::string& method, UnknownLine unknown)
      : graph_(graph), sites_(sites), method_(method), unknown_(unknown) {}

  void run(Block* block) {
    take_from_behind(block);
    note_choices(block);
    own_checks(block);
    undo_ops(block);
    undo_checks_left(block);
  }

 private:
  // First of all: whoever writes a chain out takes it that its op's result is the chain's.
  void take_from_behind(Block* top) {
    for_each_block(top, [&](Block* block) {
      for (auto it = block->nodes().begin(); it != block->nodes().end();) {
        Node* node = *it++;
        if (!is_tailor(node, "as_silu")) continue;
        Value* result = node->input(0);
        Node* op = seen(result)->node();
        if (fused_chain(op) && op->output()->uses().size() > 1) {  // freezing made one of equal ones
          op = clone(op)->insertBefore(node);
          result = op->output();
        }
        behind_[op] = {text_of(node->input(1)), node->sourceRange(), node->callstack()};
        result->copyMetadata(node->output());
        node->output()->replaceAllUsesWith(result);
        destroy_if_unused(node);
      }
    });
  }

  // Which chain each If chooses, while its op is still to be seen: torch may have put that elsewhere.
  void note_choices(Block* top) {
    for_each_block(top, [&](Block* block) {
      for (Node* node : block->nodes()) {
        if (!is_choice(node)) continue;
        const Block* fused = node->blocks()[0];
        std::vector<const Node*> ops(fused->nodes().begin(), fused->nodes().end());
        for (const Value* result : fused->outputs()) ops.push_back(seen(const_cast<Value*>(result))->node());
        for (const Node* op : ops)
          if (const Chain* chain = fused_chain(op)) chosen_[node] = chain;
      }
    });
  }

  // Torch makes one of equal checks, each of which knows where its own chain's parts stood: every chain gets its own again.
  void own_checks(Block* top) {
    std::vector<Node*> owners;  // of checks
    for_each_block(top, [&](Block* block) {
      const bool is_chosen = block->owningNode() && is_choice(block->owningNode());
      for (Node* node : block->nodes())
        if (is_choice(node) || (fused_chain(node) && !is_chosen)) owners.push_back(node);
    });
    std::unordered_set<const Node*> owned;
    for (Node* owner : owners) {
      Node* asked = owner;
      if (is_choice(owner)) {
        asked = owner->input()->node();
        if (!owned.insert(asked).second) {
          asked = clone(asked)->insertBefore(owner);
          owner->replaceInput(0, asked->output());
        }
      }
      Value* shared = asked->input(0);
      const auto checks = checks_before(shared);
      const auto is_owned = [&](const Node* check) { return owned.contains(check); };
      if (std::any_of(checks.begin(), checks.end(), is_owned)) {
        Value* passed = checks.front()->input(0);
        for (Node* check : checks) {
          Node* own = clone(check)->insertAfter(check);
          own->replaceInput(0, passed);
          passed = own->output(0);
        }
        asked->replaceInput(0, passed);
        for (Block* block : owner->blocks())
          for (Node* node : block->nodes()) node->replaceInputWith(shared, passed);
      }
      owned.insert(checks.begin(), checks.end());
    }
  }

  Node* clone(Node* node) {
    return graph_.createClone(node, [](Value* value) { return value; });
  }

  void undo_ops(Block* block) {
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      Node* node = *it++;
      if (const auto chosen = chosen_.find(node); chosen != chosen_.end()) {
        undo_choice(node, *chosen->second);
        continue;
      }
      if (const Chain* chain = fused_chain(node))
        undo_op(node, *chain);
      else
        for (Block* inner : node->blocks()) undo_ops(inner);
    }
  }

  // Nobody reads the chain, so that torch has dropped it, but a norm's module goes on asking for the shape of what it is given.
  void undo_checks_left(Block* top) {
    std::vector<Node*> last_ones;  // of each chain
    for_each_block(top, [&](Block* block) {
      for (Node* node : block->nodes())
        if (is_tailor(node, "check") && !node->output(0)->hasUses()) last_ones.push_back(node);
    });
    for (Node* check : last_ones) {
      auto checks = checks_before(check->input(0));
      checks.push_back(check);
      write_checks(checks);
    }
  }

  // What the last of the checks knows of their chain's parts, written once more for those who read a shape.
  void write_checks(const std::vector<Node*>& checks) {
    if (const auto text = text_of_check(graph_, checks.back()))
      undo_checks(write_out(graph_, *text, checks.back(), unknown_), checks);
  }

  void note(const Chain& chain, const Node* node) {
    sites_.push_back({std::string(chain.name), method_, source_line(node), false, "unfused"});
  }

  void undo_op(Node* op, const Chain& chain) {
    note(chain, op);
    const auto checks = checks_before(op->input(0));
    const auto silu = behind_.find(op);
    const bool ends_in_silu = silu != behind_.end();
    Text text = text_of_op(op, chain, ends_in_silu ? silu->second.spelling : spelling_of(checks));
    // Of a chain that nobody reads a file has no other side, but the op, which writes statistics.
    text.word_for_word = !op->output()->hasUses();
    const auto parts = write_out(graph_, text, op, unknown_);
    Value* result = parts.back().node->output();
    if (ends_in_silu) {
      result->node()->setSourceRange(silu->second.line);
      if (silu->second.calls) result->node()->setCallStack(*silu->second.calls);
    }
    result->copyMetadata(op->output());
    result->setType(op->output()->type());
    op->output()->replaceAllUsesWith(result);
    op->destroy();
    undo_checks(parts, checks);
  }

  void undo_choice(Node* choice, const Chain& chain) {
    Node* uniform = choice->input()->node();
    const auto checks = checks_before(uniform->input(0));
    if (choice->outputs().empty()) {
      // Where nobody reads the result, torch drops it when it compiles a file, and the spelling that made it, which is not
      // known to write statistics. The op is.
      const auto op = std::find_if(choice->blocks()[0]->nodes().begin(), choice->blocks()[0]->nodes().end(),
                                   [](const Node* node) { return fused_chain(node) != nullptr; });
      Node* left = op == choice->blocks()[0]->nodes().end() ? nullptr : *op;
      move_before(choice, choice->blocks()[0]);
      choice->destroy();
      destroy_if_unused(uniform);
      if (left) undo_op(left, chain);
      return;
    }
    note(chain, uniform);
    Block* spelled = choice->blocks()[1];
    const auto parts = spelled_in(spelled, chain);
    Value* result = spelled->outputs()[0];
    move_before(choice, spelled);
    choice->output()->replaceAllUsesWith(result);
    choice->destroy();
    destroy_if_unused(uniform);
    const auto is_read = [](const Node* check) { return check->output(1)->hasUses(); };
    if (parts.empty() && std::any_of(checks.begin(), checks.end(), is_read))
      write_checks(checks);
    else
      undo_checks(parts, checks);
  }

  Graph& graph_;
  std::vector<Site>& sites_;
  const std::string& method_;
  UnknownLine unknown_;
  struct Silu {
    std::string spelling;
    torch::jit::SourceRange line;
    std::optional<torch::jit::InlinedCallStackPtr> calls;
  };
  std::unordered_map<const Node*, Silu> behind_;  // of ops whose chain ends in one
  std::unordered_map<const Node*, const Chain*> chosen_;
};

}  // namespace

bool unfuse_graph(const std::shared_ptr<Graph>& graph, std::vector<Site>& sites, const std::string& method,
                  UnknownLine unknown) {
  if (!has_tailor_op(graph->block())) return false;
  own_constants(graph->block());
  drop_order(graph->block());
  make_orders_constant(graph->block());
  drop_unwritten(graph->block());  // read again where the author read it
  Unfuser(*graph, sites, method, unknown).run(graph->block());
  turn_back(graph->block());
  widen_tuples(graph->block());  // freezing may have taken parts of them for what they are
  for_each_block(graph->block(), [&](Block* block) {
    for (Node* node : block->nodes())
      if (const auto forked = forked_graph(node)) unfuse_graph(forked, sites, method, unknown);
  });
  return true;
}

}  // namespace tailor
