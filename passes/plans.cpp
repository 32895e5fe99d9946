#include "plans.h"

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

// Another thread may be in the middle of what is replaced: it is kept for a while.
template <class T>
void keep(const T& replaced) {
  constexpr std::size_t most = 64;
  static std::mutex mutex;
  static auto* kept = new std::deque<T>;
  const std::lock_guard lock(mutex);
  kept->push_back(replaced);
  if (kept->size() > most) kept->pop_front();
}

// The next call makes a new one, in its own state of autocast, whose dtype torch writes into the plan.
void forget_plans(GraphFunction& function) {
  const std::lock_guard lock(mutex_of(function));  // a thread that calls it for the first time holds this
  function.clear_optimized_graphs();
  for (auto& executor : executors_of(function)) {
    if (!executor) continue;
    keep(*executor);
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
  const auto& executors = executors_of(function);
  if (std::any_of(executors.begin(), executors.end(), [](const auto& executor) { return executor.has_value(); }))
    keep(function.graph());  // a file's constants, say, are not to be held because nobody ever called it
  graph_of(function) = std::move(graph);
}

}  // namespace tailor
