#include "plans.h"

#include <torch/custom_class.h>

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <optional>

#include "calls.h"
#include "pass.h"

namespace tailor {
namespace {

using torch::jit::GraphExecutor;
using torch::jit::GraphFunction;

// One per state of autocast: off, CPU, CUDA, both.
using Executors = std::array<std::optional<GraphExecutor>, 4>;

Executors& executors_of(GraphFunction& function);
std::shared_ptr<Graph>& graph_of(GraphFunction& function);
std::recursive_mutex& mutex_of(GraphFunction& function);

// torch has no way to ask whether a function has run: get_executor() makes an executor, for a large graph at the price of
// several copies, and there are four. Nor has it one to give a function another graph. The language lets an explicit
// instantiation name a private member.
template <Executors GraphFunction::*executors, std::shared_ptr<Graph> GraphFunction::*graph,
          std::recursive_mutex GraphFunction::*mutex>
struct Reveal {
  friend Executors& executors_of(GraphFunction& function) { return function.*executors; }
  friend std::shared_ptr<Graph>& graph_of(GraphFunction& function) { return function.*graph; }
  friend std::recursive_mutex& mutex_of(GraphFunction& function) { return function.*mutex; }
};
template struct Reveal<&GraphFunction::executors_, &GraphFunction::graph_, &GraphFunction::compile_mutex>;

// What a function's graph took the place of, and plans of before. Another thread may be in the middle of them, or reading them, as one does
// that saves a model: so the last of them are kept. They go when the graph does: nobody holds a file's constants, say, when their module
// has gone.
struct Replaced : torch::CustomClassHolder {
  std::deque<std::shared_ptr<Graph>> graphs;
  std::deque<GraphExecutor> executors;

  template <class T>
  static void keep(std::deque<T>& all, const T& one) {
    constexpr std::size_t most = 16;
    all.push_back(one);
    if (all.size() > most) all.pop_front();
  }

  static c10::Symbol name() { return c10::Symbol::attr("tailor_replaced"); }
  static Replaced& with(Graph& graph) {
    Node* const node = graph.param_node();
    if (!node->hasAttribute(name())) node->ival_(name(), c10::IValue::make_capsule(c10::make_intrusive<Replaced>()));
    return static_cast<Replaced&>(*node->ival(name()).toCapsule());
  }
};

// The next call makes a new one, in its own state of autocast, whose dtype torch writes into the plan.
void forget_plans(GraphFunction& function) {
  const std::lock_guard lock(mutex_of(function));  // a thread that calls it for the first time holds this
  function.clear_optimized_graphs();
  for (auto& executor : executors_of(function)) {
    if (!executor) continue;
    Replaced::keep(Replaced::with(*function.graph()).executors, *executor);
    executor.reset();
  }
}

// Whether it is a linear and nothing else, as torch.nn's is.
bool is_linear_alone(const Block* block) {
  return std::all_of(block->nodes().begin(), block->nodes().end(), [](const Node* node) {
    return node->kind() == c10::prim::GetAttr || node->kind() == c10::prim::Constant ||
           node->kind() == c10::aten::linear;
  });
}

}  // namespace

void forget_plans(const std::vector<GraphFunction*>& functions) {
  for (GraphFunction* function : with_called(functions))
    if (!is_linear_alone(function->graph()->block()) && Leads(has_linear_or_op).from(*function))
      forget_plans(*function);
}

void set_graph(GraphFunction& function, std::shared_ptr<Graph> graph) {
  graph->set_op_version(function.graph()->get_op_version());
  const std::lock_guard lock(mutex_of(function));
  const std::shared_ptr<Graph> before = function.graph();
  Replaced& replaced = Replaced::with(*before);
  Replaced::keep(replaced.graphs, before);
  std::erase(replaced.graphs, graph);  // one that takes its place again
  graph->param_node()->ival_(Replaced::name(), before->param_node()->ival(Replaced::name()));
  before->param_node()->removeAttribute(Replaced::name());
  graph_of(function) = std::move(graph);
}

}  // namespace tailor
