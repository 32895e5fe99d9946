// How long does the pass take? Fuses generated modules of 10 to 100,000 nodes and prints a line of JSON for each:
// {"nodes": 1000, "sites": 41, "fused": 33, "seconds": 0.02, "copy_seconds": 0.01}. tools/pass_time.py draws the figure in
// the docs from it. Beside the pass stands what torch itself takes to copy the same graph and to destroy the copy: both are
// one visit to every node, so where they slow down it is the machine's memory that does.
#include <ATen/Functions.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <string>

#include "tailor/tailor.h"

namespace {

using torch::jit::Module;

// A block of a network: two chains of different rules, with the write to a counter that a batch norm in training has;
// a linear that nothing fuses with; a branch; and ops between. Each block reads the result of the one before.
const char* const block = R"(
    y = torch.linear(x, self.weight, self.bias)
    if self.training:
        self.count.add_(1)
    x = torch.batch_norm(y * self.scale, self.gamma, self.beta, self.mean, self.variance, self.training, 0.1, 1e-5, True)
    x = torch.relu(x) + 1.0
    y = torch.linear(x, self.weight, self.bias)
    z = torch.sigmoid(y) * 2.0 + y
    if bool(z.size(0) == 1):
        z = z.view([1, -1])
    y = torch.linear(z, self.weight, self.bias)
    x = torch.tanh(y) + y
    x = x.transpose(0, 1).transpose(0, 1)
)";

Module module(int blocks) {
  Module result("Generated");
  for (const char* name : {"bias", "scale", "gamma", "beta"})
    result.register_parameter(name, at::ones({4}), /*is_buffer=*/false);
  result.register_parameter("weight", at::ones({4, 4}), /*is_buffer=*/false);
  result.register_buffer("mean", at::zeros({4}));
  result.register_buffer("variance", at::ones({4}));
  result.register_buffer("count", at::zeros({}, at::kLong));
  result.register_attribute("training", c10::BoolType::get(), true);
  std::string code = "def forward(self, x):\n";
  for (int i = 0; i < blocks; ++i) code += block;
  result.define(code + "    return x\n");
  return result;
}

std::size_t nodes(const torch::jit::Block* block) {
  std::size_t count = 0;
  for (const auto* node : block->nodes()) {
    ++count;
    for (const auto* inner : node->blocks()) count += nodes(inner);
  }
  return count;
}

// CPU time: the pass has one thread, and the machine may have other work.
template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::clock();
  work();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

void measure(int blocks, int rounds) {
  double fusing = std::numeric_limits<double>::max();
  double copying = fusing;
  std::size_t size = 0;
  tailor::Report report;
  for (int round = 0; round < rounds; ++round) {
    auto fresh = module(blocks);
    {
      const auto graph = fresh.get_method("forward").graph();
      size = nodes(graph->block());
      copying = std::min(copying, seconds_of([&] { graph->copy(); }));
    }
    fusing = std::min(fusing, seconds_of([&] { report = tailor::fuse(fresh); }));
  }
  std::printf("{\"nodes\": %zu, \"sites\": %zu, \"fused\": %zu, \"seconds\": %.6f, \"copy_seconds\": %.6f}\n", size,
              report.sites.size(), report.fused(), fusing, copying);
  std::fflush(stdout);
}

}  // namespace

// With an argument: one size, fused once.
int main(int count, char** arguments) {
  if (count > 1)
    measure(std::atoi(arguments[1]), 1);
  else
    for (const int blocks : {1, 3, 10, 30, 100, 300, 1000, 3000}) measure(blocks, 5);
}
