// The pass over one graph, whichever door it came through.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <string>
#include <vector>

#include "specimen.h"
#include "tailor/tailor.h"

namespace tailor {

struct PassOptions {
  std::vector<std::string> rules;              // empty means all
  std::string method;                          // its name in the report
  std::vector<Specimen>* specimens = nullptr;  // where fused sites are to be kept
  bool reasons = true;                         // whether anybody reads why a site was left alone
  bool fuses = true;                           // else only what was fused before is kept right, where it is called
  bool is_executors = false;                   // whose graph has a loop's turns one after another, all with the same op
  std::string leave;                           // a reason to leave all chains alone; empty where there is none
};

struct PassResult {
  std::vector<Site> sites;   // every linear of the graph
  bool changed = false;      // something was fused that was not, so that the graph is worth keeping
  std::string unfit;         // why the graph fits no file, because calls were inlined; empty where it does
  bool lacks_order = false;  // for that reason alone: it has ops, and what would lose its order beside them (order.h)
};

// Expects calls to be inlined, and a graph that may be spoiled: a copy. Where it throws, or where nothing changed, the
// copy is thrown away, else it takes the original's place.
PassResult run_pass(const std::shared_ptr<torch::jit::Graph>& graph, const PassOptions& options);

// The reason of a site of which the method returns the linear's own result.
inline constexpr const char* result_of_the_method = "its result is the method's result";

// The inverse: only ATen's ops are left. Returns whether there was anything to do. A call whose line nobody knows any more
// gets that of its linear, so that an error leads near, or none.
enum class UnknownLine { of_linear, none };
bool unfuse_graph(const std::shared_ptr<torch::jit::Graph>& graph, std::vector<Site>& sites, const std::string& method,
                  UnknownLine unknown = UnknownLine::of_linear);

bool has_linear(const torch::jit::Block* block);  // a quick look, in forks too
bool has_tailor_op(const torch::jit::Block* block);
bool has_linear_or_op(const torch::jit::Block* block);  // where a chain may be, fused or not

}  // namespace tailor
