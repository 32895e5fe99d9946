// Arguments for an op, made from its schema.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <map>
#include <string>

namespace tailor::test {

inline c10::OperatorHandle op(const std::string& name, const std::string& overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(("tailor::" + name).c_str(), overload.c_str());
}

using Arguments = std::map<std::string, c10::IValue>;

// 7 × 5 → 12 in float64.
inline Arguments sample() {
  at::manual_seed(3);
  const auto random = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble); };
  return {{"input", random({7, 5})},
          {"weight", random({12, 5})},
          {"bias", random({12})},
          {"scale", random({12})},
          {"addend", random({12})},
          {"factor", 2.5},
          {"divisor", 1.5},
          {"norm_weight", random({12})},
          {"norm_bias", random({12})},
          {"running_mean", random({12})},
          {"running_var", at::rand({12}, at::kDouble) + 0.5},
          {"training", true},
          {"momentum", 0.2},
          {"eps", 1e-3},
          {"cudnn_enabled", true},
          {"num_groups", 3}};
}

// What `f` raises; empty where it raises nothing.
template <class Function>
std::string message_of(const Function& f) {
  try {
    f();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

inline at::Tensor call(const c10::OperatorHandle& handle, const Arguments& arguments) {
  torch::jit::Stack stack;
  for (const auto& argument : handle.schema().arguments()) stack.push_back(arguments.at(argument.name()));
  handle.callBoxed(stack);
  return stack.at(0).toTensor();
}

}  // namespace tailor::test
