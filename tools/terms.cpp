#include "terms.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <unordered_map>

#include "compare.h"

namespace tailor::tool {
namespace {

using torch::jit::Node;
using torch::jit::Value;

at::Tensor tensor_of(const c10::IValue& value) { return value.isTensor() ? value.toTensor() : at::Tensor(); }

// What a norm multiplies a gradient by before it takes off means; undefined where it takes off none, or that is not known.
at::Tensor gain_of(const Way& way, Node* norm) {
  const auto value = [&](std::size_t input) { return way.value_of(norm->input(input)); };
  const at::Tensor x = tensor_of(value(0));
  if (!x.defined() || x.dim() < 2 || x.numel() == 0) return {};
  at::Tensor variance, weight;
  double eps = 0;
  if (norm->kind() == c10::aten::group_norm) {
    const c10::IValue groups = value(1), given = value(4);
    if (!groups.isInt() || !given.isDouble() || groups.toInt() < 1 || x.size(1) % groups.toInt() != 0) return {};
    variance =
        x.reshape({x.size(0), groups.toInt(), -1}).var(at::IntArrayRef({2}), /*unbiased=*/false, /*keepdim=*/true);
    variance = variance.expand({x.size(0), groups.toInt(), x.numel() / x.size(0) / groups.toInt()}).reshape(x.sizes());
    weight = tensor_of(value(2));
    eps = given.toDouble();
  } else {
    const c10::IValue training = value(5), given = value(7);
    if (!training.isBool() || !training.toBool() || !given.isDouble()) return {};
    std::vector<std::int64_t> others;
    for (std::int64_t i = 0; i < x.dim(); ++i)
      if (i != 1) others.push_back(i);
    variance = x.var(others, /*unbiased=*/false, /*keepdim=*/true).expand(x.sizes());
    weight = tensor_of(value(1));
    eps = given.toDouble();
  }
  at::Tensor gain = (variance + eps).rsqrt();
  if (!weight.defined()) return gain;
  std::vector<std::int64_t> of_channels(static_cast<std::size_t>(x.dim()), 1);
  of_channels[1] = -1;
  return gain * weight.abs().reshape(of_channels);
}

}  // namespace

std::vector<double> sizes_of_terms(const Way& way, const at::Tensor& output, const at::Tensor& of_output,
                                   const std::vector<at::Tensor>& leaves, const at::Generator& generator) {
  const auto with_signs = [generator](const at::Tensor& terms) {
    const auto signs = at::randint(0, 2, terms.sizes(), generator, terms.options().requires_grad(false)) * 2 - 1;
    return terms * signs;
  };
  // Of each value in front of a norm: what arrives behind the norm, once it has.
  struct InFront {
    at::Tensor gain;
    std::shared_ptr<at::Tensor> behind;
  };
  std::unordered_map<Value*, InFront> in_front;
  std::unordered_map<Value*, std::shared_ptr<at::Tensor>> behind;
  for (Value* value : way.values) {
    Node* const node = value->node();
    if (node->kind() != c10::aten::group_norm && node->kind() != c10::aten::batch_norm) continue;
    const at::NoGradGuard off;
    if (const at::Tensor gain = gain_of(way, node); gain.defined())
      in_front[node->input(0)] = {gain, behind[value] = std::make_shared<at::Tensor>()};
  }
  for (std::size_t i = 0; i < way.values.size(); ++i) {
    const at::Tensor& value = way.tensors[i];
    if (!value.requires_grad() || value.is_leaf()) continue;
    const auto norm = in_front.find(way.values[i]);
    const auto found = behind.find(way.values[i]);
    value.register_hook([with_signs, in = norm == in_front.end() ? InFront() : norm->second,
                         out = found == behind.end() ? nullptr : found->second](const at::Tensor& gradient) {
      at::Tensor terms = gradient.abs();
      if (out) *out = terms;
      if (in.behind && in.behind->defined()) terms = at::maximum(terms, in.gain * *in.behind);
      return with_signs(terms);
    });
  }
  std::vector<double> sizes(leaves.size());
  const auto draw = [&](const std::vector<std::size_t>& which) {
    std::vector<at::Tensor> some;
    for (const std::size_t i : which) some.push_back(leaves[i]);
    const auto found = torch::autograd::grad({output}, some, {of_output}, /*retain_graph=*/true,
                                             /*create_graph=*/false, /*allow_unused=*/true);
    for (std::size_t i = 0; i < which.size(); ++i)
      if (found[i].defined()) sizes[which[i]] = std::max(sizes[which[i]], largest(found[i]));
  };
  // The largest of many numbers is what it is in any draw, that of one may be next to nothing.
  constexpr std::int64_t few = 64;
  constexpr int draws_of_few = 4;
  std::vector<std::size_t> all(leaves.size()), small;
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::ranges::copy_if(all, std::back_inserter(small), [&](std::size_t i) { return leaves[i].numel() < few; });
  draw(all);
  for (int i = 1; i < draws_of_few && !small.empty(); ++i) draw(small);
  return sizes;
}

}  // namespace tailor::tool
