// TorchScript from text, and its graphs, for everything that makes modules without Python: the tests of the pass and its
// fuzzer. It needs no GoogleTest.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <string>

namespace tailor::test {

// What Module::define does, with a name for the file that reports and errors point to, and with `fork`, `annotate`,
// `Exception`, `no_grad` and `tailor` among the names that the text may use.
void define(torch::jit::Module& module, const std::string& text, const std::string& file);

// Inlines the calls of a graph and of those that it forks, as the pass expects it.
void inline_calls(torch::jit::Graph& graph);

// Of a message: the exception's own, without TorchScript's traceback before it.
std::string last_line(std::string message);

}  // namespace tailor::test
