#include "layout.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/TypeProperties.h>

#include <vector>

namespace tailor {
namespace {

at::Tensor without_values(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  return at::detail::empty_strided_meta(sizes, strides, type);
}

// One of torch's operations, up to where it would begin to compute.
class Operation final : public at::TensorIteratorBase {
 public:
  static at::Tensor of(const at::Tensor& value) {
    const at::Tensor none;
    Operation operation;
    operation.build_borrowing_unary_op(none, value);
    return operation.out_;
  }
  static at::Tensor of(const at::Tensor& left, const at::Tensor& right) {
    const at::Tensor none;
    Operation operation;
    operation.build_borrowing_binary_op(none, left, right);
    return operation.out_;
  }

  const at::Tensor& maybe_get_output(std::int64_t) override { return out_; }
  void set_output_raw_strided(std::int64_t which, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options, at::DimnameList names) override {
    const auto type = c10::typeMetaToScalarType(options.dtype());
    out_ = strides.empty() ? at::Tensor(at::detail::empty_meta(sizes, type, options.memory_format_opt()))
                           : without_values(sizes, strides, type);
    at::TensorIteratorBase::set_output_raw_strided(which, sizes, strides, options, names);
  }

 private:
  at::Tensor out_;
};

// On the CPU what has another dtype than the result is first made one that has, and what overlaps itself becomes dense.
at::Tensor cast(const at::Tensor& value, at::ScalarType type) {
  if (value.scalar_type() == type || value.dim() == 0) return value;
  if (value.is_non_overlapping_and_dense()) return without_values(value.sizes(), value.strides(), type);
  return without_values(value.sizes(), at::infer_dense_strides(value.sizes(), value.strides()), type);
}

at::Tensor together(const at::Tensor& left, const at::Tensor& right, bool on_cpu) {
  if (!on_cpu) return Operation::of(left, right);
  using at::native::update_result_type_state;
  const auto type = at::native::result_type(update_result_type_state(right, update_result_type_state(left, {})));
  return Operation::of(cast(left, type), cast(right, type));
}

// torch's norms on the CPU keep channels_last and nothing else. What the other devices' do is not known here.
at::Tensor normed(const at::Tensor& value, bool on_cpu) {
  const auto format = on_cpu ? value.suggest_memory_format() : at::MemoryFormat::Contiguous;
  return at::detail::empty_meta(value.sizes(), value.scalar_type(), format);
}

}  // namespace

at::Tensor layout_of(const Chain& chain, const Spelling& spelling, const at::Tensor& y,
                     const c10::List<std::optional<at::Tensor>>& operands, bool on_cpu) {
  std::vector<at::Tensor> results{y};
  std::size_t next = 0;
  for (std::size_t i = 1; i < chain.steps.size(); ++i) {
    const Step& step = chain.steps[i];
    at::Tensor& result = results.emplace_back();
    if (step.is_operand()) {
      if (const std::optional<at::Tensor> operand = operands.get(next++))
        result = without_values(operand->sizes(), operand->strides(), operand->scalar_type());
      continue;
    }
    const at::Tensor& left = results[static_cast<std::size_t>(step.left)];
    if (step.is_norm()) {
      result = normed(left, on_cpu);
    } else if (spelling.is_in_place(i)) {
      result = left;
    } else if (step.right < 0) {
      result = Operation::of(left);
      if (step.kind == Step::Kind::swish && !spelling.is_silu(i)) result = together(left, result, on_cpu);
    } else {
      const at::Tensor& right = results[static_cast<std::size_t>(step.right)];
      result = !right.defined()          ? Operation::of(left)  // a number
               : spelling.is_reversed(i) ? together(right, left, on_cpu)
                                         : together(left, right, on_cpu);
    }
  }
  return results.back();
}

}  // namespace tailor
