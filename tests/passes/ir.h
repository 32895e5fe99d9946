// What the tests of the pass have in common: nets written as TorchScript, whole graphs as text, and running a graph as it
// is written, by the interpreter and without any executor's passes.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "passes/pass.h"

namespace tailor::test {

using torch::jit::Graph;
using torch::jit::Module;

// A net of features 5 → 12 in float64 whose forward(self, x) is `body`, in "net.py". Statements are separated by "; " or
// by lines; a body that begins with "def" is taken as it is and may hold several methods. What it may name is in ir.cpp.
Module net(const std::string& body);

// A copy of a method's graph with all calls inlined, as the pass expects it.
std::shared_ptr<Graph> graph_of(const Module& module, const std::string& method = "forward");

std::shared_ptr<Graph> parse(const std::string& ir);

// The beginning of a graph for parse: its inputs and constants.
inline constexpr const char* head = R"(graph(%x : Tensor, %w : Tensor, %b : Tensor, %s : Tensor):
  %none : NoneType = prim::Constant()
  %one : int = prim::Constant[value=1]()
  %yes : bool = prim::Constant[value=1]()
  %small : float = prim::Constant[value=0.1]()
)";

// Takes the checks out of a graph that has no blocks. Returns what they say: "3 linear silu:3" for the check of step 3.
std::string take_checks(const std::shared_ptr<Graph>& graph);

// Runs the pass.
std::vector<Site> fuse_graph(const std::shared_ptr<Graph>& graph, const std::vector<std::string>& rules = {});

// The whole graph as text. What cannot matter is made equal: names, and the place of constants and of attributes that
// nobody assigns to, which are read once, at the top.
std::string text(const std::shared_ptr<Graph>& graph);

torch::jit::Node* find(const std::shared_ptr<Graph>& graph, const std::string& kind);  // the first in the top block

bool has(const Graph& graph, const std::string& kind);  // such as "tailor::check", in inner blocks too

struct Outcome {
  std::vector<at::Tensor> values;                         // of the graph's results, tuples taken apart
  std::string error;                                      // the last line of what was raised
  std::vector<std::pair<std::string, at::Tensor>> state;  // parameters and buffers afterwards
  std::vector<at::Tensor> inputs;                         // afterwards
};

// Runs the graph.
Outcome run_on(Module module, const std::shared_ptr<Graph>& graph, const std::vector<at::Tensor>& inputs);

// The same on copies of the module and of the inputs.
Outcome run(const std::shared_ptr<Graph>& graph, const Module& module, const std::vector<at::Tensor>& inputs);

// What is not the same; empty if nothing. Values may differ by rounding, dtypes, shapes and strides not at all.
std::string difference(const Outcome& wanted, const Outcome& got);

// Runs both graphs in both modes on inputs and with vectors of many shapes and dtypes, and compares each time.
std::string difference(const std::shared_ptr<Graph>& wanted, const std::shared_ptr<Graph>& got, const Module& module);

bool automatic(bool on);                       // tailor::auto
std::int64_t calls_of(const std::string& op);  // on any path

// A net with one linear that must be left alone.
struct NearMiss {
  std::string name;
  const char* rule;  // the nearest
  std::string body;
  std::string reason;  // as the report gives it

  friend void PrintTo(const NearMiss& row, std::ostream* out) { *out << row.name; }
};
void expect_stays(const NearMiss& row);

}  // namespace tailor::test
