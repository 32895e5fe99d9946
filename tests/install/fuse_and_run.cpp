// Loads a model as torch saved it, fuses it and runs it.
#include <tailor/tailor.h>
#include <torch/script.h>

#include <cstdlib>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: fuse_and_run MODEL.pt FEATURES\n";
    return 2;
  }
  torch::manual_seed(0);
  const auto input = torch::randn({16, std::atoi(argv[2])});
  torch::jit::Module model = torch::jit::load(argv[1]);
  const tailor::Report report = tailor::fuse(model);
  std::cerr << report.fused() << " of " << report.sites.size() << " linears fused\n";
  model.eval();
  torch::NoGradGuard no_grad;
  std::cout << model.forward({input}).toTensor().sum().item<double>() << "\n";
}
