// What became of the linears of graphs: which ops stand in them, and which linears are still there, by the author's lines.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "pass_model.h"
#include "pass_run.h"

namespace tailor::fuzz {

struct Places {
  std::map<std::string, std::set<std::string>> fused;  // the rules of the ops that stand for a line's linears
  std::set<std::string> left;                          // lines of linears; what a guard has beside its op is none

  std::set<std::string> addmm;  // of these, those of an addmm

  enum class Forks { too, not_in };
  void look(torch::jit::Graph& graph, Forks forks = Forks::too);
  void look(const Graphs& graphs);

  // What another knows of these lines.
  void take(const std::vector<std::string>& lines, const Places& other);

  // Whether there is anything of these lines.
  bool know(const std::vector<std::string>& lines) const;
  bool have_op(const std::vector<std::string>& lines, const std::string& rule) const;
  // Whether all there is of these lines is this rule's op.
  bool are_fused(const std::vector<std::string>& lines, const std::string& rule) const;
};

}  // namespace tailor::fuzz
