#include "rewrite.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "effects.h"
#include "lines.h"
#include "unwritten.h"

namespace tailor {
namespace {

using c10::Symbol;
using torch::jit::WithInsertPoint;
using Arguments = std::vector<std::vector<Value*>>;  // by step

Node* insert(Graph& graph, Symbol kind, c10::ArrayRef<Value*> inputs, std::size_t outputs, const Node* like) {
  Node* node = graph.insertNode(graph.create(kind, inputs, outputs));
  take_user_line(node, like);
  return node;
}

Value* insert_turn(Graph& graph, Value* matrix, const Node* like) {
  return insert(graph, Symbol::aten(turn), {matrix}, 1, like)->output()->setType(c10::TensorType::get());
}

// A norm whose training is a constant false takes the overload without training and momentum, which writes nothing.
bool take_inference_overload(Node* op) {
  const auto& schema = op->schema();
  const auto training = schema.argumentIndexWithName("training");
  const auto momentum = schema.argumentIndexWithName("momentum");
  if (!training || !is_constant_false(op->input(static_cast<std::size_t>(*training)))) return false;
  op->removeInput(static_cast<std::size_t>(std::max(*training, *momentum)));
  op->removeInput(static_cast<std::size_t>(std::min(*training, *momentum)));
  return true;
}

// The chain's op, with the arguments of each step one after the other.
Node* insert_op(Graph& graph, const Match& match, const Arguments& by_step) {
  std::vector<Value*> inputs;
  for (const auto& arguments : by_step)
    for (Value* argument : arguments) inputs.push_back(argument ? argument : graph.insertConstant(c10::IValue()));
  Node* op = insert(graph, op_symbol(*match.chain), inputs, 1, match.linear.nodes[0]);
  take_inference_overload(op);
  op->getOperator();  // throws here, where the caller sees it, if the arguments fit no schema
  return op;
}

// What is silu's alone to refuse stands behind the op.
Value* insert_as_silu(Graph& graph, const Match& match, Value* result) {
  if (!match.ends_in_silu()) return result;
  static const Symbol as_silu = Symbol::fromQualString("tailor::as_silu");
  Value* spelling_of_match = graph.insertConstant(match.spelling);
  return insert(graph, as_silu, {result, spelling_of_match}, 1, match.last())
      ->output()
      ->setType(c10::TensorType::get());
}

Value* insert_chain(Graph& graph, const Match& match, const Arguments& by_step) {
  return insert_as_silu(graph, match, insert_op(graph, match, by_step)->output());
}

Value* insert_none(Graph& graph) { return graph.insertConstant(c10::IValue()); }

// Whether a gradient goes through what needs its result before it comes to the step.
bool is_behind_results(const Match& match, int step) {
  return std::any_of(match.parts.begin(), match.parts.end(),
                     [&](const Part& part) { return part.done >= step && needs_its_result(part.node); });
}

// The vectors and scalars of steps 1 to `last`, None for numbers; and, where asked for, what a norm learns whose gradient may be
// what a spelling has overwritten. As many as a guard takes, by name like what is unwritten.
std::vector<Value*> operands(Graph& graph, const Match& match, const Arguments& by_step, int last,
                             bool with_norm = false) {
  std::vector<Value*> operands;
  for (int step = 1; step <= last; ++step) {
    const Step& kind = match.chain->steps[static_cast<std::size_t>(step)];
    const auto& arguments = by_step[static_cast<std::size_t>(step)];
    if (with_norm && kind.is_norm() && is_behind_results(match, step)) {
      const std::size_t weight = kind.kind == Step::Kind::group_norm ? 1 : 0;  // a bias follows it
      for (Value* learned : {arguments[weight], arguments[weight + 1]})
        if (is_tensor_or_none(learned)) operands.push_back(learned);
    }
    if (!kind.is_operand()) continue;
    Value* operand = arguments[0];
    operands.push_back(is_tensor(operand) ? operand : insert_none(graph));
  }
  if (operands.size() < Chain::max_operands) operands.resize(Chain::max_operands, insert_none(graph));
  return operands;
}

// A guard's node: what it is told of the linear, of the chain, and of the operands up to a step.
Node* insert_guard(Graph& graph, const char* name, const Arguments& by_step, const std::vector<c10::IValue>& said,
                   const std::vector<Value*>& operands, std::size_t outputs, const Node* like) {
  const auto& linear = by_step[0];
  std::vector<Value*> inputs{linear[0], linear[1], linear[2] ? linear[2] : insert_none(graph)};
  for (const c10::IValue& word : said) inputs.push_back(graph.insertConstant(word));
  inputs.insert(inputs.end(), operands.begin(), operands.end());
  return insert(graph, Symbol::fromQualString(name), inputs, outputs, like);
}

// Whether the op may stand for the author's spelling, which is asked where that match needs_uniform.
Value* insert_uniform(Graph& graph, const Match& match, const Arguments& by_step) {
  Node* node = insert_guard(graph, "tailor::uniform", by_step, {match.inference_only, match.promotes_as_formula()},
                            operands(graph, match, by_step, match.chain->last(), match.inference_only), 1,
                            match.linear.nodes[0]);
  return node->output()->setType(c10::BoolType::get());
}

// Results of chains that are rewritten already, where others read them.
using Replaced = std::unordered_map<Value*, Value*>;

class Rewriter {
 public:
  Rewriter(Graph& graph, const Proven& proven, Replaced& replaced)
      : graph_(graph), match_(proven.match), proof_(proven.proof), replaced_(replaced) {
    for (const auto& step : match_.arguments) {
      arguments_.emplace_back();
      for (Value* argument : step) arguments_.back().push_back(argument ? current(argument) : nullptr);
    }
  }

  void run() {
    if (match_.linear.turned) {
      const WithInsertPoint here(match_.linear.nodes[0]);
      arguments_[0][1] = insert_turn(graph_, arguments_[0][1], match_.linear.nodes[0]);
    }
    for (const Gap& gap : proof_.gaps) fill(gap);
    Value* result = put_op();
    Value* old = match_.last()->output();
    result->setType(old->type());
    old->replaceAllUsesWith(result);
    result->copyMetadata(old);
    replaced_[old] = result;
  }

 private:
  Value* current(Value* value) const {
    const auto found = replaced_.find(seen(value));
    return found == replaced_.end() ? value : found->second;
  }

  void fill(const Gap& gap) {
    const Part& part = match_.parts[gap.part];
    const WithInsertPoint here(part.node->next());
    if (!gap.written.empty()) hold_unwritten(part, gap.written);
    if (gap.check) put_check(part);
  }

  // Clones what `value` is made of, where that is not there yet: attributes of attributes, constants.
  Value* value_at(Value* value, Node* place) {
    Node* producer = value->node();
    if (producer->kind() == c10::prim::Param || place->isDominatedBy(producer)) return value;
    const auto known = [&](Value* input) { return value_at(input, place); };
    return graph_.insertNode(graph_.createClone(producer, known))->output();
  }

  // One op for each that is written: torch takes it of what lies in a list that it may be written to wherever anything is, and
  // no longer makes one of two equal batch norms that read it. Freezing then folds both into one linear.
  void hold_unwritten(const Part& part, const std::vector<Gap::Target>& written) {
    for (const auto& [tensor, if_true] : written) {
      if (if_true)
        hold_if(part, tensor, if_true);
      else
        for (Value** argument : read_before(part)) *argument = unwritten(*argument, tensor, part.node);
    }
  }

  // In training, mostly. Freezing knows that there is none, and lets go of what would be written.
  void hold_if(const Part& part, Value* tensor, Value* if_true) {
    const auto arguments = read_before(part);
    Node* choice = insert(graph_, c10::prim::If, {value_at(if_true, part.node)}, arguments.size(), part.node);
    Block* held = choice->addBlock();
    Block* as_it_is = choice->addBlock();
    const WithInsertPoint inside(held);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      held->registerOutput(unwritten(*arguments[i], tensor, part.node));
      as_it_is->registerOutput(*arguments[i]);
      *arguments[i] = choice->output(i)->setType(held->outputs()[i]->type());
    }
  }

  // What the parts up to this one have read of tensors.
  std::vector<Value**> read_before(const Part& part) {
    std::vector<Value**> all;
    for (int step = 0; step <= part.done; ++step)
      for (Value*& argument : arguments_[static_cast<std::size_t>(step)])
        if (argument && is_tensor_or_none(argument) && !is_none(argument)) all.push_back(&argument);
    return all;
  }

  Value* unwritten(Value* value, Value* tensor, Node* place) {
    static const Symbol kind = Symbol::fromQualString("tailor::unwritten");
    Value* held = insert(graph_, kind, {value, value_at(current(tensor), place)}, 1, place)->output();
    held->setType(is_tensor(value) ? c10::TypePtr(c10::TensorType::get()) : c10::OptionalType::ofTensor());
    return held;
  }

  void put_check(const Part& part) {
    auto& linear = arguments_[0];
    const std::vector<c10::IValue> said{std::string(match_.chain->name), std::int64_t{part.done}, match_.spelling};
    Node* node = insert_guard(graph_, "tailor::check", arguments_, said,
                              operands(graph_, match_, arguments_, part.done), 2, part.node);
    node->output(0)->setType(c10::TensorType::get());
    node->output(1)->setType(c10::TensorType::get());
    linear[0] = node->output(0);
    for (const ShapeReader& reader : match_.shape_readers) {
      if (reader.value != part.node->output()) continue;
      for (std::size_t i = 0; i < reader.node->inputs().size(); ++i)
        if (seen(reader.node->input(i)) == reader.value) reader.node->replaceInput(i, node->output(1));
    }
  }

  Value* put_op() {
    const WithInsertPoint here(match_.last());
    if (!match_.needs_uniform()) return insert_chain(graph_, match_, arguments_);

    auto& linear = arguments_[0];
    Value* condition = insert_uniform(graph_, match_, arguments_);
    Node* choice = insert(graph_, c10::prim::If, {condition}, 1, match_.last());
    Block* fused = choice->addBlock();
    Block* as_written = choice->addBlock();
    {
      const WithInsertPoint inside(fused);
      fused->registerOutput(insert_chain(graph_, match_, arguments_));
    }
    std::unordered_map<Value*, Value*> clones;
    if (match_.linear.turned) {  // back again, as it was held
      const WithInsertPoint inside(as_written);
      clones[match_.linear.weight] = insert_turn(graph_, linear[1], match_.linear.nodes[0]);
    }
    // Step by step: a value that two steps read may be held as it was for one of them alone.
    const auto clone = [&](Node* node, int done) {
      std::unordered_map<Value*, Value*> given;
      const auto give = [&](int step) {
        const auto& before = match_.arguments[static_cast<std::size_t>(step)];
        const auto& now = arguments_[static_cast<std::size_t>(step)];
        for (std::size_t a = 0; a < now.size(); ++a)
          if (before[a]) given[current(seen(before[a]))] = now[a];
      };
      const Step& step = match_.chain->steps[static_cast<std::size_t>(done)];
      give(done);
      for (const int operand : {step.left, step.right})
        if (operand >= 0 && match_.chain->steps[static_cast<std::size_t>(operand)].is_operand()) give(operand);
      Node* copy = as_written->appendNode(graph_.createClone(node, [&](Value* value) {
        for (const auto* known : {&clones, &given})
          if (const auto found = known->find(seen(value)); found != known->end()) return found->second;
        return value;
      }));
      clones[node->output()] = copy->output();
    };
    if (match_.linear.transpose) clone(match_.linear.transpose, 0);  // of the weight as it was held
    for (const Part& part : match_.parts) clone(part.node, std::max(part.done, 0));
    as_written->registerOutput(clones.at(match_.last()->output()));
    return choice->output();
  }

  Graph& graph_;
  const Match& match_;
  const Proof& proof_;
  Replaced& replaced_;
  Arguments arguments_;  // the match's, as the gaps pass them on
};

void destroy_profiles(Value* value) {
  const auto uses = value->uses();
  for (const auto& use : uses) {
    if (use.user->kind() != c10::prim::profile) continue;
    destroy_profiles(use.user->output());
    use.user->destroy();
  }
}

}  // namespace

void rewrite(Graph& graph, const std::vector<Proven>& all) {
  Replaced replaced;
  for (const Proven& proven : all) Rewriter(graph, proven, replaced).run();
  // Now that no match names their values any more. Left to dead-code elimination, a dead aten::batch_norm would survive
  // and write its statistics a second time.
  std::unordered_set<Node*> transposes;  // chains that share a weight share its transpose
  for (auto proven = all.rbegin(); proven != all.rend(); ++proven) {
    const auto& parts = proven->match.parts;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      destroy_profiles(part->node->output());
      part->node->destroy();
    }
    if (proven->match.linear.transpose) transposes.insert(proven->match.linear.transpose);
  }
  for (Node* transpose : transposes)
    if (!transpose->hasUses()) transpose->destroy();
}

void destroy_if_unused(Node* node) {
  if (node->hasUses()) return;
  std::unordered_set<Node*> lists, constants;  // each once: torch makes one of equal constants, and several may read it
  const auto note = [&](const Node* reader, c10::Symbol kind, std::unordered_set<Node*>& found) {
    for (const Value* input : reader->inputs())
      if (input->node()->kind() == kind) found.insert(const_cast<Node*>(input->node()));
  };
  note(node, c10::prim::ListConstruct, lists);
  note(node, c10::prim::Constant, constants);
  for (const Node* list : lists) note(list, c10::prim::Constant, constants);
  node->destroy();
  for (const auto& made_for_it : {lists, constants})  // what reads before what is read
    for (Node* each : made_for_it)
      if (!each->hasUses()) each->destroy();
}

bool settle_after_freezing(Graph& graph) {
  bool changed = false;
  bool anyone_writes = false;
  for_each_block(graph.block(), [&](Block* block) {
    for (Node* node : block->nodes()) {
      if (fused_chain(node)) changed = take_inference_overload(node) || changed;
      anyone_writes = anyone_writes || may_write(node);
    }
  });
  return (!anyone_writes && drop_unwritten(graph.block())) || changed;
}

Specimen take_specimen(const Match& match) {
  Specimen specimen;
  specimen.inference_only = match.inference_only;
  specimen.before = std::make_shared<Graph>();
  specimen.after = std::make_shared<Graph>();
  Graph& before = *specimen.before;
  Graph& after = *specimen.after;
  std::unordered_map<Value*, Value*> in_before;
  std::unordered_map<Value*, Value*> in_after;
  Arguments arguments = match.arguments;

  if (match.linear.turned) {  // both have the op's weight as their input
    Value*& matrix = arguments[0][1];
    const auto constant = torch::jit::toIValue(matrix);
    Value* weight = before.addInput()->setType(c10::TensorType::get());
    in_before[matrix] = insert_turn(before, weight, match.linear.nodes[0]);
    matrix = after.addInput()->setType(c10::TensorType::get());
    specimen.inputs.push_back({"weight", "", c10::IValue(constant->toTensor().t())});
  }
  for (std::size_t step = 0; step < arguments.size(); ++step) {
    for (Value*& argument : arguments[step]) {
      if (!argument || argument->owningGraph() == &after) continue;
      Value* value = seen(argument);
      if (!in_after.contains(value)) {
        const auto constant = torch::jit::toIValue(value);
        if (constant && !constant->isTensor()) {
          in_before[value] = before.insertConstant(*constant);
          in_after[value] = after.insertConstant(*constant);
        } else {
          in_before[value] = before.addInput()->setType(value->type());
          in_after[value] = after.addInput()->setType(value->type());
          specimen.inputs.push_back({"", attribute_path(value), constant});
        }
      }
      argument = in_after.at(value);
    }
  }

  const auto copy = [&](Node* node) {
    Node* clone = before.insertNode(before.createClone(node, [&](Value* value) {
      const auto found = in_before.find(seen(value));
      if (found != in_before.end()) return found->second;
      std::optional<c10::IValue> constant = torch::jit::toIValue(seen(value));
      if (is_none(value)) constant.emplace();  // the bias of a module that has none
      TORCH_CHECK(constant, "an input of ", describe(node), " is neither the chain's nor a constant");
      return in_before[seen(value)] = before.insertConstant(*constant);
    }));
    in_before[node->output()] = clone->output();
  };
  if (match.linear.transpose) copy(match.linear.transpose);
  for (const Part& part : match.parts) copy(part.node);
  before.registerOutput(in_before.at(match.last()->output()));

  if (match.needs_uniform()) {
    Value* condition = insert_uniform(after, match, arguments);
    after.registerOutput(condition);
    specimen.guard = after.copy();
    after.eraseOutput(0);
    condition->node()->destroy();
  }
  Node* op = insert_op(after, match, arguments);
  after.registerOutput(insert_as_silu(after, match, op->output()));
  const auto& schema = op->schema();
  for (std::size_t i = 0; i < specimen.inputs.size(); ++i)
    for (const auto& use : after.inputs()[i]->uses())
      if (specimen.inputs[i].argument.empty()) specimen.inputs[i].argument = schema.arguments()[use.offset].name();
  return specimen;
}

}  // namespace tailor
