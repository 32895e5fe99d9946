// Runs a fused file. Loading is all that it takes: Tailor's ops are there because the program is linked with Tailor.
#include <torch/script.h>

#include <cstdlib>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: run_fused FUSED.pt FEATURES\n";
    return 2;
  }
  torch::manual_seed(0);
  const auto input = torch::randn({16, std::atoi(argv[2])});
  torch::jit::Module model = torch::jit::load(argv[1]);
  model.eval();
  torch::NoGradGuard no_grad;
  std::cout << model.forward({input}).toTensor().sum().item<double>() << "\n";
}
