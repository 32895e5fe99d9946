// The functions of a module, and which of them a report speaks of.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <unordered_set>
#include <vector>

namespace tailor {

// The methods of a class, a module's or another, and its forward hooks, which are none of them.
std::vector<torch::jit::Function*> functions_of(const c10::ClassType& type);

struct Member {
  // Of the submodule or object whose method it is; empty for the module's own, and for what is nobody's.
  std::string path;
  torch::jit::GraphFunction* function;

  std::string name() const;  // in a report: "forward", "encoder.forward"
};

struct Members {
  // Of one object of every class, those in it first; before them functions that have to stay called.
  std::vector<Member> all;
  // Those that a caller of the module may run and whose linears no other such function has in it: the module's own, and
  // those of what it has that nothing calls, or nobody knows who, as it is through an interface.
  std::unordered_set<const torch::jit::Function*> entries;

  std::vector<torch::jit::GraphFunction*> functions() const;
};

Members members_of(const torch::jit::Module& module);

}  // namespace tailor
