#include "threads_models.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>

#include "passes/ir.h"
#include "tailor/tailor.h"

namespace tailor::test {
namespace {

std::string apart(const char* what, const at::Tensor& got, const at::Tensor& wanted) {
  if (!wanted.defined() || at::allclose(got, wanted, 1e-10, 1e-10)) return "";
  return std::string(what) + " differs by up to " + std::to_string((got - wanted).abs().max().item<double>()) + "; ";
}

}  // namespace

std::string Answer::difference(const Answer& wanted) const {
  return apart("the result", out, wanted.out) + apart("the running mean", mean, wanted.mean) +
         apart("the running variance", var, wanted.var) + apart("the gradient", gradient, wanted.gradient);
}

SharedModel::SharedModel(const std::string& body) : name_(body), plain_(net(body)), fused_(plain_.clone()) {
  if (fuse(fused_).fused() == 0) throw std::logic_error("nothing is fused in " + body);
  for (const bool training : {true, false}) {  // eval at last: what is shared stays there
    plain_.setattr("training", training);
    fused_.setattr("training", training);
  }
  mean_ = plain_.attr("mean").toTensor().clone();
  var_ = plain_.attr("var").toTensor().clone();
  for (std::size_t i = 0; i < inputs; ++i)
    inputs_.push_back(at::randn({5 + static_cast<std::int64_t>(i), 5}, at::kDouble));

  const bool before = automatic(false);  // what is wanted comes from torch alone
  auto unfused = plain_.clone();
  for (const Mode mode : {Mode::eval, Mode::gradients, Mode::training}) {
    unfused.setattr("training", mode == Mode::training);
    for (std::size_t i = 0; i < inputs; ++i) wanted_[static_cast<std::size_t>(mode)].push_back(call(unfused, mode, i));
  }
  automatic(before);
}

Answer SharedModel::call(torch::jit::Module& module, Mode mode, std::size_t input) const {
  Answer answer;
  const at::NoGradGuard no_grad;
  if (mode == Mode::training) {
    module.attr("mean").toTensor().copy_(mean_);
    module.attr("var").toTensor().copy_(var_);
  }
  if (mode == Mode::gradients) {
    const at::AutoGradMode with_gradients(true);
    const auto x = inputs_[input].detach().requires_grad_();
    answer.out = module.forward({x}).toTensor();
    answer.gradient = torch::autograd::grad({answer.out.square().sum()}, {x}).at(0);
    answer.out = answer.out.detach();
    return answer;
  }
  answer.out = module.forward({inputs_[input]}).toTensor();
  if (mode == Mode::training) {
    answer.mean = module.attr("mean").toTensor().clone();
    answer.var = module.attr("var").toTensor().clone();
  }
  return answer;
}

const std::vector<std::string>& bodies() {
  static const std::vector<std::string> all = {
      "return self.bn(self.linear(x) * self.scale)",
      "y = self.linear(x); return torch.sigmoid(y) * self.factor + y",
      "return self.gn(self.swish(self.linear(x) + self.scale))",
      "return self.gn(self.swish(self.linear(x)) + self.scale)",
      "return self.swish((self.batch_norm(self.linear(x)) + self.one) / self.factor)",
      "return self.swish(self.swish(self.gn(self.linear(x))) * self.scale)",
      "y = self.linear(x); n = y.size(0); return self.batch_norm(y * self.scale) + float(n)",
      R"(if x.size(0) > 6:
    y = self.batch_norm(self.linear(x) * self.scale)
else:
    z = self.linear2(x)
    y = torch.sigmoid(z) * self.factor + z; return y)",
  };
  return all;
}

}  // namespace tailor::test
