// The small model that the tests of verification look at, and its site.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <memory>
#include <optional>
#include <string>

#include "tools/verify.h"

namespace tailor::tool {

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// batch_norm(linear(x, weight, bias) * scale), random statistics.
inline torch::jit::Module scaled(at::ScalarType dtype = at::kFloat) {
  at::manual_seed(3);
  torch::jit::Module module("Scaled");
  const auto parameter = [&](const char* name, at::Tensor value) {
    module.register_parameter(name, value.to(dtype).requires_grad_(), /*is_buffer=*/false);
  };
  parameter("weight", at::randn({24, 40}));
  parameter("bias", at::randn({24}));
  parameter("scale", at::randn({24}));
  parameter("gamma", at::rand({24}) + 0.5);
  parameter("beta", at::randn({24}));
  module.register_buffer("mean", at::randn({24}).to(dtype));
  module.register_buffer("variance", (at::rand({24}) + 0.5).to(dtype));
  module.register_attribute("training", c10::BoolType::get(), true);
  return module;
}

inline const char* const forward = R"(
def forward(self, x):
    y = torch.linear(x, self.weight, self.bias) * self.scale
    return torch.batch_norm(y, self.gamma, self.beta, self.mean, self.variance, self.training, 0.1, 1e-5, True)
)";

inline torch::jit::Module model(const std::string& code = forward, at::ScalarType dtype = at::kFloat) {
  auto module = scaled(dtype);
  module.define(code);
  return module;
}

// The site of that module. `body` computes %out from %x %weight %bias %scale %gamma %beta %mean %variance %training.
inline std::shared_ptr<torch::jit::Graph> graph(const std::string& body) {
  auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(R"(graph(%x : Tensor, %weight : Tensor, %bias : Tensor?, %scale : Tensor, %gamma : Tensor?,
      %beta : Tensor, %mean : Tensor, %variance : Tensor?, %training : bool):
  %momentum : float = prim::Constant[value=0.1]()
  %eps : float = prim::Constant[value=1e-05]()
  %true : bool = prim::Constant[value=1]()
  %false : bool = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %none : NoneType = prim::Constant()
)" + body + "\n  return (%out)\n",
                      graph.get());
  return graph;
}

inline const char* const linear = "  %y : Tensor = aten::linear(%x, %weight, %bias)\n";
inline const char* const scaling = "  %s : Tensor = aten::mul(%y, %scale)\n";
inline const char* const norm =
    "  %out : Tensor = aten::batch_norm(%s, %gamma, %beta, %mean, %variance, %training, %momentum, %eps, %true)\n";
inline const std::string chain = std::string(linear) + scaling + norm;

inline Specimen specimen(const std::string& after) {
  Specimen site;
  site.site = {"linear_mul_batch_norm", "forward", "net.py:31", true, ""};
  site.before = graph(chain);
  site.after = graph(after);
  const auto from = [&](const char* argument, const char* attribute) {
    site.inputs.push_back({argument, attribute, std::nullopt});
  };
  from("input", "");
  from("weight", "weight");
  from("bias", "bias");
  from("scale", "scale");
  from("norm_weight", "gamma");
  from("norm_bias", "beta");
  from("running_mean", "mean");
  from("running_var", "variance");
  from("training", "training");
  return site;
}

}  // namespace tailor::tool
