#include "pass_places.h"

#include <algorithm>
#include <array>

#include "passes/forks.h"
#include "passes/graph.h"
#include "passes/lines.h"

namespace tailor::fuzz {
namespace {

bool is_product(const torch::jit::Node* node) {
  return std::ranges::any_of(std::array{"linear", "addmm", "matmul", "mm"},
                             [&](const char* name) { return is_aten(node, name); });
}

void look_at(torch::jit::Block* block, Places& places, Places::Forks forks) {
  for (torch::jit::Node* node : block->nodes()) {
    if (const tailor::Chain* chain = fused_chain(node))
      places.fused[source_line(node)].emplace(chain->name);
    else if (is_product(node))
      places.left.insert(source_line(node));
    if (is_aten(node, "addmm")) places.addmm.insert(source_line(node));
    const auto forked = forked_graph(node);
    if (forked && forks == Places::Forks::too) places.look(*forked);
    if (is_guarded(node))
      look_at(node->blocks()[0], places, forks);
    else
      for (torch::jit::Block* inner : node->blocks()) look_at(inner, places, forks);
  }
}

}  // namespace

void Places::look(torch::jit::Graph& graph, Forks forks) { look_at(graph.block(), *this, forks); }

void Places::look(const Graphs& graphs) {
  for (const auto& [method, graph] : graphs) look(*graph);
}

void Places::take(const std::vector<std::string>& lines, const Places& other) {
  for (const std::string& line : lines) {
    if (const auto ops = other.fused.find(line); ops != other.fused.end()) fused[line] = ops->second;
    if (other.left.contains(line)) left.insert(line);
  }
}

bool Places::have_op(const std::vector<std::string>& lines, const std::string& rule) const {
  return std::ranges::any_of(lines, [&](const std::string& line) {
    const auto ops = fused.find(line);
    return ops != fused.end() && ops->second.contains(rule);
  });
}

bool Places::know(const std::vector<std::string>& lines) const {
  return std::ranges::any_of(lines, [&](const auto& line) { return fused.contains(line) || left.contains(line); });
}

bool Places::are_fused(const std::vector<std::string>& lines, const std::string& rule) const {
  const std::set<std::string> only = {rule};
  return know(lines) && std::ranges::all_of(lines, [&](const std::string& line) {
           const auto ops = fused.find(line);
           return !left.contains(line) && (ops == fused.end() || ops->second == only);
         });
}

}  // namespace tailor::fuzz
