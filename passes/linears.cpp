#include "linears.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "../ops/spelling.h"
#include "effects.h"

namespace tailor {
namespace {

using Kind = Step::Kind;

bool has_dimensions(const Node* node, std::int64_t first, std::int64_t second) {
  const auto is = [&](std::size_t input, std::int64_t wanted) {
    const auto value = torch::jit::toIValue(node->input(input));
    return value && value->isInt() && value->toInt() == wanted;
  };
  return node->inputs().size() == 3 && is(1, first) && is(2, second);
}

// Whether the node is permute(1, 0). The pass has made its list a constant.
bool swaps_two(const Node* node) {
  const auto order = torch::jit::toIValue(node->input(1));
  if (!order || !order->isIntList() || order->toIntList().size() != 2) return false;
  const auto is = [&](std::size_t i, std::int64_t wanted) {
    const std::int64_t dimension = order->toIntList().get(i);
    return dimension == wanted || dimension == wanted - 2;
  };
  return is(0, 1) && is(1, 0);
}

bool is_matrix(const Node* constant) {
  const auto value = torch::jit::toIValue(constant->output());
  if (!value || !value->isTensor() || !value->toTensor().defined()) return false;
  const at::Tensor& tensor = value->toTensor();
  return tensor.layout() == at::kStrided && !tensor.is_quantized() && !tensor.is_nested() && tensor.dim() == 2;
}

// Whether it is all the same if the transpose runs where it stands or with the product. Who else reads it has it where it stands.
bool stands_right_before(const Node* transpose, const Node* product) {
  if (transpose->owningBlock() != product->owningBlock()) return false;
  for (const Node* node = product->prev(); node != transpose; node = node->prev())
    if (is_noticeable(node)) return false;
  return true;
}

// Takes the right side of a matrix product, where that makes it a linear.
bool take_right(Value* right, Linear& linear, Right allowed = Right::transpose_or_matrix) {
  Node* node = seen(right)->node();
  if (node->kind() == c10::prim::Constant) {
    linear.turned = allowed == Right::transpose_or_constant || is_matrix(node);
    if (linear.turned) linear.weight = seen(right);
  } else if (!transpose_of(node).empty()) {
    linear.transpose = node;
    linear.weight = seen(node->input(0));
    linear.is_apart = !stands_right_before(node, linear.nodes.front());
  }
  return linear.weight != nullptr;
}

// Whether a tensor is the module's own, or one that is, laid out otherwise or cut.
bool is_of_module(Value* value) {
  constexpr int enough = 8;  // steps
  for (int i = 0; i < enough && is_tensor(value); ++i) {
    Node* node = seen(value)->node();
    if (node->kind() == c10::prim::GetAttr) return true;
    constexpr std::string_view others[] = {"permute", "transpose", "contiguous", "mH",       "H",    "matrix_H",
                                           "adjoint", "movedim",   "moveaxis",   "swapaxes", "view", "reshape",
                                           "slice",   "select",    "narrow",     "clone",    "to",   "detach",
                                           "expand",  "unsqueeze", "squeeze"};
    const auto is = [&](std::string_view name) { return is_aten(node, name) && !is_in_place(node); };
    if (transpose_of(node).empty() && std::none_of(std::begin(others), std::end(others), is)) return false;
    value = node->input(0);
  }
  return false;
}

// The linear with what is added to it for a bias, in each way in which it may be read so.
std::vector<Linear> with_a_bias(const Linear& linear) {
  std::vector<Linear> found;
  Node* const node = linear.nodes.front();
  for (Node* sum : readers(node->output())) {
    if (sum->owningBlock() != node->owningBlock() || !is_plain_arithmetic(sum, Kind::add)) continue;
    const bool left = seen(sum->input(0)) == node->output();
    Value* bias = sum->input(left ? 1 : 0);
    if (!is_tensor(bias) || seen(bias) == node->output() || (is_in_place(sum) && !left)) continue;
    Linear with_bias = linear;
    with_bias.nodes.push_back(sum);
    with_bias.bias = bias;
    found.push_back(with_bias);
  }
  return found;
}

}  // namespace

std::string transpose_of(const Node* node) {
  if (is_in_place(node)) return "";
  for (const char* name : {"t", "numpy_T", "mT"})
    if (is_aten(node, name)) return name;
  if (is_aten(node, "permute")) return swaps_two(node) ? "permute" : "";
  if (!is_aten(node, "transpose")) return "";
  for (const Transpose& each : transposes)
    if (has_dimensions(node, each.first, each.second)) return each.name;
  for (const Transpose& each : transposes)
    if (has_dimensions(node, each.second, each.first)) return each.name;
  return "";
}

bool is_plain_arithmetic(const Node* node, Kind kind) {
  if (!is_aten(node, to_string(kind))) return false;
  const std::string name = overload(node);
  if (kind == Kind::div && (name == "Tensor_mode" || name == "Scalar_mode")) return is_none(node->input(2));
  if (name != "Tensor" && name != "Scalar") return false;
  return kind != Kind::add || is_constant_one(node->input(2));
}

std::vector<Linear> linears_at(Node* node, Right allowed) {
  const auto inputs = node->inputs();
  std::vector<Linear> found;
  if (is_aten(node, "linear") && inputs.size() == 3) {
    const Linear linear{{node}, inputs[0], inputs[1], is_none(inputs[2]) ? nullptr : inputs[2]};
    if (linear.bias == nullptr) found = with_a_bias(linear);
    found.push_back(linear);
  } else if (is_aten(node, "addmm") && !is_in_place(node) && inputs.size() == 5 && is_constant_one(inputs[3]) &&
             is_constant_one(inputs[4])) {
    Linear linear{{node}, inputs[1], nullptr, inputs[0]};
    if (take_right(inputs[2], linear, allowed)) found.push_back(linear);
  } else if ((is_aten(node, "matmul") || is_aten(node, "mm")) && inputs.size() == 2) {
    Linear linear{{node}, inputs[0], nullptr, nullptr};
    if (!take_right(inputs[1], linear, allowed)) return found;
    found = with_a_bias(linear);
    found.push_back(linear);
  }
  return found;
}

std::optional<OtherLinear> other_linear_at(Node* node) {
  const std::size_t count = node->inputs().size();
  const bool is_sum = is_aten(node, "addmm") && (count == 5 || count == 6);
  const bool is_product = (is_aten(node, "matmul") || is_aten(node, "mm")) && (count == 2 || count == 3);
  const bool is_linear = is_aten(node, "linear") && count == 4;
  if (!is_sum && !is_product && !is_linear) return std::nullopt;
  Value* right = node->input(is_sum ? 2 : 1);
  const bool writes_its_result = is_in_place(node) || is_given_its_result(node);
  if (Linear linear{{node}}; is_linear || take_right(right, linear)) {
    if (writes_its_result)
      return OtherLinear{right, describe(node) + " writes its result to a tensor that it is given"};
    if (count == (is_sum ? 6 : 3)) return OtherLinear{right, describe(node) + " is told the dtype of its result"};
    if (is_product || (is_constant_one(node->input(3)) && is_constant_one(node->input(4)))) return std::nullopt;
    return OtherLinear{right, describe(node) + " has an alpha or a beta"};
  }
  if (!is_of_module(right)) return std::nullopt;
  return OtherLinear{right, describe(node) + " multiplies by " + describe(seen(right)) +
                                ", where a linear has the transpose of its weight, as in x @ w.t()"};
}

}  // namespace tailor
