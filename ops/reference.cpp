#include "reference.h"

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>

#include "plain.h"
#include "spelling.h"

namespace tailor {
namespace {

using c10::IValue;

std::optional<at::Tensor> optional_tensor(const IValue& value) {
  if (value.isNone()) return std::nullopt;
  return value.toTensor();
}

at::Tensor transposed(const at::Tensor& weight, std::string_view how) {
  if (how == "numpy_T") return weight.numpy_T();
  if (how == "mT") return weight.mT();
  for (const Transpose& each : transposes)
    if (how == each.name) return weight.transpose(each.first, each.second);
  if (how == "permute") return weight.permute({1, 0});
  return weight.t();
}

at::Tensor linear(const IValue* argument, const Spelling& spelling) {
  const at::Tensor& input = argument[0].toTensor();
  const at::Tensor& weight = argument[1].toTensor();
  const auto bias = optional_tensor(argument[2]);
  const std::string_view how = spelling.linear();
  if (how == "linear") return at::linear(input, weight, bias);
  const auto matrix = [&] { return transposed(weight, spelling.transpose()); };
  if (how == "addmm" && bias) return at::addmm(*bias, input, matrix());  // a file may say it without
  const at::Tensor product = how.starts_with("sum")  ? at::linear(input, weight)
                             : how.starts_with("mm") ? at::mm(input, matrix())
                                                     : at::matmul(input, matrix());
  if (!bias) return product;
  if (how.ends_with('_')) return product.add_(*bias);
  return spelling.is_reversed(0) ? at::add(*bias, product) : at::add(product, *bias);
}

// silu rounds once, and not twice. But its gradient has no forward mode, and a tensor of somebody's own class need not know it.
at::Tensor swish(const at::Tensor& v, bool as_written) {
  const bool rounds = !as_written && at::isFloatingType(v.scalar_type()) && v.layout() == at::kStrided &&
                      unusual_tensor(v) == nullptr;
  return rounds ? at::silu(v) : at::mul(v, at::sigmoid(v));
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

// Whether a dual number comes in behind the linear: then a gradient that comes back to a swish is one, too.
bool has_duals(const Chain& chain, const StepArguments* arguments, Norm norm, std::size_t steps) {
  for (std::size_t i = 1; i < steps; ++i) {
    const Step& step = chain.steps[i];
    constexpr int of_norm = 4;  // weight, bias and statistics; or groups, weight and bias, and a number
    const int count = step.is_operand() ? 1 : step.is_norm() && norm != Norm::skipped ? of_norm : 0;
    for (int j = 0; j < count; ++j) {
      const IValue& argument = arguments[i].first[j];
      if (argument.isTensor() && argument.toTensor().defined() && is_dual(argument.toTensor())) return true;
    }
  }
  return false;
}

using Results = c10::SmallVector<at::Tensor, Chain::max_steps>;

// Runs the steps from `first` on; the results of those before it are there, as in a backward.
void run_steps(const Chain& chain, const StepArguments* arguments, Norm norm, const Spelling& spelling,
               std::size_t first, Results& results) {
  const bool as_written = first > 0 || has_duals(chain, arguments, norm, results.size());
  for (std::size_t i = first; i < results.size(); ++i) {
    const Step& step = chain.steps[i];
    const IValue* argument = arguments[i].first;
    const auto left = [&]() -> const at::Tensor& { return results[static_cast<std::size_t>(step.left)]; };
    const bool in_place = spelling.is_in_place(i);
    // Calls `operation` with both operands. The right one alone can be a number, and then it has no other side.
    const auto with_operands = [&](auto operation) {
      const auto right = static_cast<std::size_t>(step.right);
      const IValue* operand = arguments[right].first;
      if (chain.steps[right].kind == Step::Kind::scalar && !operand->isTensor())
        return operation(left(), operand->toScalar());
      return spelling.is_reversed(i) ? operation(results[right], left()) : operation(left(), results[right]);
    };
    switch (step.kind) {
      case Step::Kind::linear:
        results[i] = linear(argument, spelling);
        break;
      case Step::Kind::vector:
        results[i] = argument->toTensor();
        break;
      case Step::Kind::scalar:
        if (argument->isTensor()) results[i] = argument->toTensor();
        break;
      case Step::Kind::add:
        results[i] = with_operands([&](const auto& l, const auto& r) { return in_place ? l.add_(r) : at::add(l, r); });
        break;
      case Step::Kind::mul:
        results[i] = with_operands([&](const auto& l, const auto& r) { return in_place ? l.mul_(r) : at::mul(l, r); });
        break;
      case Step::Kind::div:
        results[i] = with_operands([&](const auto& l, const auto& r) { return in_place ? l.div_(r) : at::div(l, r); });
        break;
      case Step::Kind::sigmoid:
        results[i] = in_place ? left().sigmoid_() : at::sigmoid(left());
        break;
      case Step::Kind::swish:
        results[i] = !spelling.is_silu(i) ? swish(left(), as_written)
                     : in_place           ? at::silu_(results[static_cast<std::size_t>(step.left)])
                                          : at::silu(left());
        break;
      case Step::Kind::batch_norm:
        results[i] = norm == Norm::skipped ? left() : batch_norm(left(), argument, norm);
        break;
      case Step::Kind::group_norm:
        results[i] = norm == Norm::skipped ? left() : group_norm(left(), argument);
        break;
    }
  }
}

}  // namespace

at::Tensor reference(const Chain& chain, const StepArguments* arguments, Norm norm, int last,
                     std::string_view spelling) {
  Results results(static_cast<std::size_t>(last) + 1);
  run_steps(chain, arguments, norm, Spelling(spelling), 0, results);
  return results.back();
}

at::Tensor reference_of_tail(const Chain& chain, const StepArguments* arguments, Norm norm, const at::Tensor& y) {
  Results results(chain.steps.size());
  results[0] = y;
  run_steps(chain, arguments, norm, Spelling({}), 1, results);
  return results.back();
}

}  // namespace tailor
