#include "reference.h"

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>

namespace tailor {
namespace {

using c10::IValue;

std::optional<at::Tensor> optional_tensor(const IValue& value) {
  if (value.isNone()) return std::nullopt;
  return value.toTensor();
}

at::Tensor linear(const IValue* argument) {
  return at::linear(argument[0].toTensor(), argument[1].toTensor(), optional_tensor(argument[2]));
}

at::Tensor swish(const at::Tensor& v) {
  return at::isFloatingType(v.scalar_type()) ? at::silu(v) : at::mul(v, at::sigmoid(v));
}

at::Tensor batch_norm(const at::Tensor& v, const IValue* argument, Norm norm) {
  const auto weight = optional_tensor(argument[0]);
  const auto bias = optional_tensor(argument[1]);
  const auto mean = optional_tensor(argument[2]);
  const auto var = optional_tensor(argument[3]);
  if (norm == Norm::inference) {
    // Momentum is not read without training.
    return at::batch_norm(v, weight, bias, mean, var, false, 0.0, argument[4].toDouble(), argument[5].toBool());
  }
  return at::batch_norm(v, weight, bias, mean, var, argument[4].toBool(), argument[5].toDouble(),
                        argument[6].toDouble(), argument[7].toBool());
}

at::Tensor group_norm(const at::Tensor& v, const IValue* argument) {
  return at::group_norm(v, argument[0].toInt(), optional_tensor(argument[1]), optional_tensor(argument[2]),
                        argument[3].toDouble(), argument[4].toBool());
}

}  // namespace

at::Tensor reference(const Chain& chain, const StepArguments* arguments, Norm norm, int last) {
  c10::SmallVector<at::Tensor, Chain::max_steps> results(static_cast<std::size_t>(last) + 1);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Step& step = chain.steps[i];
    const IValue* argument = arguments[i].first;
    const auto left = [&]() -> const at::Tensor& { return results[static_cast<std::size_t>(step.left)]; };
    // Calls `on_tensor` or `on_number` with the right operand, which alone can be a number.
    const auto with_right = [&](auto on_tensor, auto on_number) {
      const auto right = static_cast<std::size_t>(step.right);
      const IValue* operand = arguments[right].first;
      if (chain.steps[right].kind == Step::Kind::scalar && !operand->isTensor()) return on_number(operand->toScalar());
      return on_tensor(results[right]);
    };
    switch (step.kind) {
      case Step::Kind::linear: results[i] = linear(argument); break;
      case Step::Kind::vector: results[i] = argument->toTensor(); break;
      case Step::Kind::scalar:
        if (argument->isTensor()) results[i] = argument->toTensor();
        break;
      case Step::Kind::add:
        results[i] = with_right([&](const at::Tensor& r) { return at::add(left(), r); },
                                [&](const at::Scalar& r) { return at::add(left(), r); });
        break;
      case Step::Kind::mul:
        results[i] = with_right([&](const at::Tensor& r) { return at::mul(left(), r); },
                                [&](const at::Scalar& r) { return at::mul(left(), r); });
        break;
      case Step::Kind::div:
        results[i] = with_right([&](const at::Tensor& r) { return at::div(left(), r); },
                                [&](const at::Scalar& r) { return at::div(left(), r); });
        break;
      case Step::Kind::sigmoid: results[i] = at::sigmoid(left()); break;
      case Step::Kind::swish: results[i] = swish(left()); break;
      case Step::Kind::batch_norm:
        results[i] = norm == Norm::skipped ? left() : batch_norm(left(), argument, norm);
        break;
      case Step::Kind::group_norm: results[i] = norm == Norm::skipped ? left() : group_norm(left(), argument); break;
    }
  }
  return results.back();
}

}  // namespace tailor
