// Tailor's C++ interface. A program that only runs fused files needs none of it: link Tailor::tailor and call
// torch::jit::load.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace tailor {

// One linear of a module's methods and what became of it.
struct Site {
  std::string rule;    // the rule that fused it, or the one that came nearest; empty when none begins like it
  std::string method;  // such as "forward" or "encoder.forward"
  std::string source;  // file and line of the linear, such as "net.py:31"
  bool fused = false;
  std::string reason;  // why it was not fused; empty when it was
};

struct Report {
  std::vector<Site> sites;
  std::size_t fused() const;
  std::string json() const;
};

struct Options {
  std::vector<std::string> rules;  // names of ops without `tailor::`; empty means all, one that is none is a ValueError
};

// Rewrites the methods of the module and of its submodules. Graphs belong to the class, so this changes every instance
// of it. Fuse the outermost module: a parent that has already run keeps its own copy of its children.
Report fuse(torch::jit::Module& module, const Options& options = {});

// Gives back graphs without Tailor's ops that compute the same, of the methods, of what they call, and of every class that either names,
// so that a file of the module loads without the library.
Report unfuse(torch::jit::Module& module);

// Says what fuse would do and changes nothing.
Report inspect(const torch::jit::Module& module, const Options& options = {});

// Whether one of Tailor's ops is in a method of the module, in what it calls, or in a class that either names, so that a file of it cannot
// be loaded without the library.
bool needs_tailor(const torch::jit::Module& module);

// The names that Options::rules may hold.
std::vector<std::string> rules();

const char* version();

}  // namespace tailor
