#include "terms.h"

#include <ATen/ExpandUtils.h>
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

// What is known of a norm and its input's numbers, each multiplied by the weight and divided by the deviation.
struct Scaled {
  at::Tensor values;  // the numbers' sizes themselves: whose means the norm subtracts
  at::Tensor gain;    // what a gradient is multiplied by before means are subtracted from it; undefined where none are
  at::Tensor
      distance;  // of the numbers from 0, in deviations: the weight's gradient adds up what is left when means are off
};

at::Tensor weight_of(const Way& way, Node* norm) {
  return tensor_of(way.value_of(norm->input(norm->kind() == c10::aten::group_norm ? 2 : 1)));
}

Scaled scaled_by(const Way& way, Node* norm) {
  const auto value = [&](std::size_t input) { return way.value_of(norm->input(input)); };
  const bool in_groups = norm->kind() == c10::aten::group_norm;
  const at::Tensor x = tensor_of(value(0)), weight = weight_of(way, norm);
  const c10::IValue eps = value(in_groups ? 4 : 7);
  if (!x.defined() || x.dim() < 2 || x.numel() == 0 || !eps.isDouble()) return {};
  const auto along_channels = [&x](const at::Tensor& vector) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(x.dim()), 1);
    sizes[1] = -1;
    return vector.reshape(sizes);
  };
  at::Tensor variance;
  bool of_input = true;
  if (in_groups) {
    const c10::IValue groups = value(1);
    if (!groups.isInt() || groups.toInt() < 1 || x.size(1) % groups.toInt() != 0) return {};
    const at::Tensor grouped = x.reshape({x.size(0), groups.toInt(), -1});
    variance = grouped.var(at::IntArrayRef({2}), /*unbiased=*/false, /*keepdim=*/true);
    variance = variance.expand(grouped.sizes()).reshape(x.sizes());
  } else if (value(5).isBool() && value(5).toBool()) {
    std::vector<std::int64_t> others;
    for (std::int64_t i = 0; i < x.dim(); ++i)
      if (i != 1) others.push_back(i);
    variance = x.var(others, /*unbiased=*/false, /*keepdim=*/true);
  } else {
    of_input = false;
    const at::Tensor running = tensor_of(value(4));
    if (!running.defined()) return {};
    variance = along_channels(running);
  }
  const at::Tensor share = (variance + eps.toDouble()).rsqrt();
  const at::Tensor gain = weight.defined() ? share * along_channels(weight.abs()) : share;
  const at::Tensor distance = x.abs() * share;
  // A rounding of the input moves what the gradient is multiplied by, too.
  return {x.abs() * gain, of_input ? gain * (1 + distance) : at::Tensor(), distance};
}

bool is_norm(const Node* node) {
  return node->kind() == c10::aten::group_norm || node->kind() == c10::aten::batch_norm;
}

}  // namespace

double size_in_front_of_norms(const Way& way) {
  const at::NoGradGuard off;
  double size = 0;
  for (Value* value : way.values) {
    if (!is_norm(value->node())) continue;
    if (const at::Tensor values = scaled_by(way, value->node()).values; values.defined())
      size = std::max(size, largest(values));
  }
  return size;
}

std::vector<double> sizes_of_terms(const Way& way, const at::Tensor& output, const at::Tensor& of_output,
                                   const std::vector<at::Tensor>& leaves, const at::Generator& generator) {
  const auto with_signs = [generator](const at::Tensor& terms) {
    const auto signs = at::randint(0, 2, terms.sizes(), generator, terms.options().requires_grad(false)) * 2 - 1;
    return terms * signs;
  };
  // Of each norm: what arrives behind it, once it has.
  struct Norm {
    Scaled scaled;
    at::Tensor weight;
    std::shared_ptr<at::Tensor> behind;
  };
  std::unordered_map<Value*, Norm> in_front, behind;
  for (Value* value : way.values) {
    if (!is_norm(value->node())) continue;
    const at::NoGradGuard off;
    const Scaled scaled = scaled_by(way, value->node());
    if (!scaled.distance.defined()) continue;
    behind[value] = {scaled, weight_of(way, value->node()), std::make_shared<at::Tensor>()};
    if (scaled.gain.defined()) in_front[value->node()->input(0)] = behind[value];
  }
  for (std::size_t i = 0; i < way.values.size(); ++i) {
    const at::Tensor& value = way.tensors[i];
    if (!value.requires_grad() || value.is_leaf()) continue;
    const auto norm_at = [&](const std::unordered_map<Value*, Norm>& norms_at) {
      const auto found = norms_at.find(way.values[i]);
      return found == norms_at.end() ? Norm() : found->second;
    };
    value.register_hook([with_signs, in = norm_at(in_front), out = norm_at(behind)](const at::Tensor& gradient) {
      at::Tensor terms = gradient.abs();
      if (out.behind) *out.behind = terms;
      if (in.behind && in.behind->defined()) terms = at::maximum(terms, in.scaled.gain * *in.behind);
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
    for (const auto& [value, norm] : behind)
      for (const std::size_t i : which) {
        if (!leaves[i].is_same(norm.weight) || !norm.behind->defined()) continue;
        const at::Tensor terms = with_signs(*norm.behind * norm.scaled.distance);
        sizes[i] = std::max(sizes[i], largest(at::sum_to(terms.transpose(1, -1), norm.weight.sizes())));
      }
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
