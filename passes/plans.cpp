#include "plans.h"

#include <ATen/autocast_mode.h>

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

class AutocastState {
 public:
  AutocastState(bool cpu, bool cuda) {
    at::autocast::set_autocast_enabled(at::kCPU, cpu);
    at::autocast::set_autocast_enabled(at::kCUDA, cuda);
  }
  AutocastState(const AutocastState&) = delete;
  AutocastState& operator=(const AutocastState&) = delete;
  ~AutocastState() {
    at::autocast::set_autocast_enabled(at::kCPU, cpu_);
    at::autocast::set_autocast_enabled(at::kCUDA, cuda_);
  }

 private:
  bool cpu_ = at::autocast::is_autocast_enabled(at::kCPU);
  bool cuda_ = at::autocast::is_autocast_enabled(at::kCUDA);
};

// Another thread may be in the middle of the old plan: it is kept for a while.
void keep(const GraphExecutor& executor) {
  constexpr std::size_t most = 64;
  static std::mutex mutex;
  static auto* kept = new std::deque<GraphExecutor>;
  const std::lock_guard lock(mutex);
  kept->push_back(executor);
  if (kept->size() > most) kept->pop_front();
}

void renew_plans(GraphFunction& function) {
  Executors& executors = executors_of(function);
  for (std::size_t state = 0; state < executors.size(); ++state) {
    if (!executors[state]) continue;
    keep(*executors[state]);
    const AutocastState as_it_was_made((state & 1) != 0, (state & 2) != 0);
    executors[state] = GraphExecutor(function.optimized_graph(), function.name());
  }
}

}  // namespace

void forget_plans(const std::vector<GraphFunction*>& functions) {
  for (GraphFunction* function : functions) function->clear_optimized_graphs();
  for (GraphFunction* function : functions) renew_plans(*function);
}

void set_graph(GraphFunction& function, std::shared_ptr<Graph> graph) {
  graph->set_op_version(function.graph()->get_op_version());
  graph_of(function) = std::move(graph);
}

}  // namespace tailor
