#include "aliases.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "effects.h"

namespace tailor {
namespace {

bool is_list_of_tensors(const Value* value) { return value->type()->isSubtypeOf(*c10::ListType::ofTensors()); }

// Kernels made of other ops return what those do. These make a tensor of their own whatever they are given; they are what models
// compute with, and write to.
constexpr std::string_view fresh =
    " absolute adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d avg_pool1d "
    "batch_norm bilinear concat conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "divide group_norm hstack inner instance_norm layer_norm linear log_sigmoid log_softmax matmul max "
    "max_pool1d max_pool2d max_pool3d min multiply negative one_hot outer relu6 rms_norm rrelu "
    "scaled_dot_product_attention selu softmax special_expit square std subtract tile true_divide var vstack "
    "where ";

// Of ATen's own kernels for a device these may return what they were given, as was found by calling them all.
constexpr std::string_view handed_back = " _unsafe_view dequantize lift set unsafe_split unsafe_split_with_sizes ";

constexpr std::size_t many = 400;  // to look at one by one

bool is_among(std::string_view words, std::string_view name) {
  return words.find(" " + std::string(name) + " ") != std::string_view::npos;
}

// Whether a result of the op may be a tensor that it was given, though its schema does not say so. What TorchScript alone has,
// and what other people have written, nobody has looked through.
bool may_return_what_it_was_given(const Node* node) {
  const auto* op = node->maybeOperator();
  if (!op || op->aliasAnalysisKind() != c10::AliasAnalysisKind::FROM_SCHEMA || node->kind().is_prim() ||
      fused_chain(node))
    return false;
  const std::string_view name = node->kind().toUnqualString();
  const c10::FunctionSchema& schema = op->schema();
  const auto handle = c10::Dispatcher::singleton().findSchema({schema.name(), schema.overload_name()});
  if (!handle || !node->kind().is_aten() || is_among(handed_back, name)) return true;
  return handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) && !is_among(fresh, name);
}

// The tensors in a value; of a container any element, which stands for all.
void tensors_in(Value* value, std::vector<Value*>& found) {
  Graph& graph = *value->owningGraph();
  const c10::TypeKind kind = value->type()->kind();
  if (is_tensor_or_none(value))
    found.push_back(value);
  else if (kind == c10::TypeKind::ListType)
    tensors_in(graph.insert(c10::aten::__getitem__, {value, graph.insertConstant(0)}), found);
  else if (kind == c10::TypeKind::DictType)
    tensors_in(graph.insert(c10::aten::values, {value}), found);
  else if (kind == c10::TypeKind::TupleType)
    for (Value* element : graph.insertNode(graph.createTupleUnpack(value))->outputs()) tensors_in(element, found);
}

std::vector<Value*> given_to(Node& node) {
  std::vector<Value*> given;
  torch::jit::WithInsertPoint before(&node);
  const std::vector<Value*> inputs = node.inputs().vec();
  for (Value* input : inputs)
    if (may_hold_tensors(input->type())) tensors_in(input, given);
  return given;
}

// A value of that type that may be any of these.
Value* any_of(Graph& graph, const std::vector<Value*>& values, const c10::TypePtr& type) {
  Value* any = values.front();
  for (Value* value : values) {
    if (value == any && *value->type() == *type) continue;
    Node* branch = graph.insertNode(graph.create(c10::prim::If, {graph.insertConstant(true)}, 1));
    for (Value* each : {any, value}) branch->addBlock()->registerOutput(each);
    any = branch->output()->setType(type);
  }
  return any;
}

}  // namespace

Aliases::Aliases(Graph& graph) {
  for_each_block(graph.block(), [this](Block* block) {
    for (const Node* node : block->nodes()) moved_ = moved_ || moves_a_tensor(node);
  });
  const std::shared_ptr<Graph> copy = graph.copy();
  follow(*graph.block(), *copy->block());
  tie_what_was_anything(copy->block());
  db_ = std::make_unique<torch::jit::AliasDb>(copy);
  group_ties();
}

void Aliases::follow(const Block& block, Block& copy) {
  for (std::size_t i = 0; i < block.inputs().size(); ++i) values_[block.inputs()[i]] = copy.inputs()[i];
  auto next = copy.nodes().begin();
  for (const Node* node : block.nodes()) {
    Node* twin = *next;
    ++next;  // before anything is put behind the twin
    nodes_[node] = twin;
    for (std::size_t i = 0; i < node->blocks().size(); ++i) follow(*node->blocks()[i], *twin->blocks()[i]);
    follow_outputs(*node, *twin);
    if (twin->kind() == c10::prim::Loop) tie_turns(*twin);
  }
}

void Aliases::follow_outputs(const Node& node, Node& copy) {
  for (std::size_t i = 0; i < node.outputs().size(); ++i) values_[node.outputs()[i]] = copy.outputs()[i];
  if (node.kind() == c10::prim::Constant && may_hold_tensors(node.output()->type())) {
    Value* const given = copy.owningGraph()->addInput()->setType(copy.output()->type());
    copy.output()->replaceAllUsesWith(given);
    values_[node.output()] = given;
  }
  if (!may_return_what_it_was_given(&node)) return;
  std::vector<Value*> given = given_to(copy);
  if (!node.kind().is_aten()) given.push_back(copy.owningGraph()->addInput());
  if (given.empty()) return;
  torch::jit::WithInsertPoint behind(copy.next());
  for (std::size_t i = 0; i < node.outputs().size(); ++i) {
    Value* result = copy.outputs()[i];
    if (i < node.schema().returns().size() && node.schema().returns()[i].alias_info()) continue;  // it says so itself
    Value* stands_for = nullptr;
    if (is_list_of_tensors(result))
      stands_for =
          copy.owningGraph()->insertNode(copy.owningGraph()->createList(c10::TensorType::get(), given))->output();
    else if (is_tensor_or_none(result))
      stands_for = any_of(*copy.owningGraph(), given, result->type());
    if (!stands_for) continue;
    result->replaceAllUsesWith(stands_for);
    values_[node.outputs()[i]] = stands_for;
  }
}

// For torch what a turn begins with is what the loop was given, and what the last one ends with is what the loop hands on: these
// two need be tied only.
void Aliases::tie_turns(Node& loop) {
  constexpr std::size_t trips_and_go_on = 2;  // come before what is carried from turn to turn
  for (std::size_t i = 0; i < loop.outputs().size(); ++i)
    if (may_hold_tensors(loop.outputs()[i]->type()))
      ties_.push_back({loop.outputs()[i], loop.inputs()[trips_and_go_on + i]});
}

void Aliases::tie_what_was_anything(Block* top) {
  const auto is_anything = [](const Value* value) { return value->type()->kind() == c10::TypeKind::AnyType; };
  const auto given = top->inputs();  // and, for torch, whatever went into a container
  Values tie(given.begin(), given.end());
  for_each_block(top, [&](Block* block) {
    for (Node* node : block->nodes()) {
      const auto inputs = node->inputs(), outputs = node->outputs();
      if (std::none_of(inputs.begin(), inputs.end(), is_anything) &&
          std::none_of(outputs.begin(), outputs.end(), is_anything))
        continue;
      std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(tie), is_tensor_or_none);
      std::copy_if(outputs.begin(), outputs.end(), std::back_inserter(tie), is_tensor_or_none);
    }
  });
  if (tie.size() == given.size()) return;
  moved_ = moved_ || tie.size() > many;
  ties_.push_back(std::move(tie));
}

// Ties that touch become one; where it would take long to find out, all do.
void Aliases::group_ties() {
  std::vector<Values> groups;
  for (Values& tie : ties_) {
    const auto is_apart = [&](const Values& group) {
      return ties_.size() < many && std::none_of(tie.begin(), tie.end(), [&](Value* v) { return touches(v, group); });
    };
    const auto joined = std::partition(groups.begin(), groups.end(), is_apart);
    for (auto group = joined; group != groups.end(); ++group) tie.insert(tie.end(), group->begin(), group->end());
    groups.erase(joined, groups.end());
    groups.push_back(std::move(tie));
  }
  ties_ = std::move(groups);
}

bool Aliases::touches(Value* value, const Values& tie) const {
  return std::any_of(tie.begin(), tie.end(),
                     [&](Value* each) { return db_->mayAlias(value, each) || db_->mayContainAlias(value, each); });
}

bool Aliases::are_tied(Value* one, Value* other) const {
  return std::any_of(ties_.begin(), ties_.end(),
                     [&](const Values& tie) { return touches(one, tie) && touches(other, tie); });
}

bool Aliases::may_alias(const Value* one, const Value* other) const {
  Value *a = values_.at(one), *b = values_.at(other);
  return moved_ || db_->mayAlias(a, b) || are_tied(a, b);
}

bool Aliases::may_contain(const Value* container, const Value* value) const {
  Value *a = values_.at(container), *b = values_.at(value);
  return moved_ || db_->mayContainAlias(a, b) || are_tied(a, b);
}

bool Aliases::writes_to(const Node* writer, const torch::jit::ValueSet& values) const {
  torch::jit::ValueSet copies;
  for (const Value* value : values) copies.insert(values_.at(value));
  for (const Values& tie : ties_)
    if (std::any_of(values.begin(), values.end(), [&](const Value* v) { return touches(values_.at(v), tie); }))
      copies.insert(tie.begin(), tie.end());
  return moved_ || db_->writesToAlias(nodes_.at(writer), copies);
}

}  // namespace tailor
