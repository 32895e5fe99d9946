#include "plans.h"

#include <array>
#include <deque>
#include <mutex>
#include <optional>

namespace tailor {
namespace {

using torch::jit::Graph;
using torch::jit::GraphExecutor;
using torch::jit::GraphFunction;

// One per state of autocast: off, CPU, CUDA, both.
using Executors = std::array<std::optional<GraphExecutor>, 4>;

Executors& executors_of(GraphFunction& function);
std::shared_ptr<Graph>& graph_of(GraphFunction& function);

// torch has no way to ask whether a function has run: get_executor() makes an executor, for a large graph at the price of
// several copies, and there are four. Nor has it one to give a function another graph. The language lets an explicit
// instantiation name a private member.
template <Executors GraphFunction::*executors, std::shared_ptr<Graph> GraphFunction::*graph>
struct Reveal {
  friend Executors& executors_of(GraphFunction& function) { return function.*executors; }
  friend std::shared_ptr<Graph>& graph_of(GraphFunction& function) { return function.*graph; }
};
template struct Reveal<&GraphFunction::executors_, &GraphFunction::graph_>;

// Another thread may be in the middle of the old plan: it is kept for a while.
void keep(const GraphExecutor& executor) {
  constexpr std::size_t most = 64;
  static std::mutex mutex;
  static auto* kept = new std::deque<GraphExecutor>;
  const std::lock_guard lock(mutex);
  kept->push_back(executor);
  if (kept->size() > most) kept->pop_front();
}

// The next call makes a new one, in its own state of autocast, whose dtype torch writes into the plan.
void forget_plans(GraphFunction& function) {
  function.clear_optimized_graphs();
  for (auto& executor : executors_of(function)) {
    if (!executor) continue;
    keep(*executor);
    executor.reset();
  }
}

}  // namespace

void forget_plans(const std::vector<GraphFunction*>& functions) {
  for (GraphFunction* function : functions) forget_plans(*function);
}

void set_graph(GraphFunction& function, std::shared_ptr<Graph> graph) {
  graph->set_op_version(function.graph()->get_op_version());
  graph_of(function) = std::move(graph);
}

}  // namespace tailor
