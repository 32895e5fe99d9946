// What a rewritten graph asks at run time, because a scripted graph knows no shapes, dtypes or storages:
//
//   check      stands where a part of the chain stood: raises what that part raises, and gives the shape of its result
//              to those who read only that
//   unwritten  a value as it is before others are written to
//   uniform    whether spellings that differ only in promotion, broadcasting (addmm, x.mul_(s)) or the order of operands agree here
//   as_silu    the result of a chain that its author ended with silu: of complex values that has no gradients
//
// They are composite for the reason given in register.h, and their schemas are a promise to saved files too.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "plain.h"
#include "reference.h"
#include "second_copy.h"
#include "spelling.h"

namespace tailor {
namespace {

using Operand = const std::optional<at::Tensor>&;  // none where it is a number
using Operands = c10::ArrayRef<std::optional<at::Tensor>>;
using OperandList = c10::List<std::optional<at::Tensor>>;  // as files have them that were fused when lists were taken

// For a backward, which raises if there is to be one: nested tensors have no sizes to save.
bool may_not_be_saved(const at::Tensor& t) {
  return c10::GradMode::is_enabled() && (t.is_nested() || is_refused_by_autograd(t));
}

bool is_special(const at::Tensor& t) {
  constexpr c10::DispatchKeySet special = c10::DispatchKeySet(
      {c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
       c10::DispatchKey::Functionalize, c10::DispatchKey::NestedTensor, c10::DispatchKey::Negative,
       c10::DispatchKey::Conjugate, c10::DispatchKey::Named, c10::DispatchKey::ZeroTensor});
  return t.layout() != at::kStrided || t.is_quantized() || t.key_set().has_any(special);
}

bool is_plain(const at::Tensor& t) {
  return !may_not_be_saved(t) && (t.is_cpu() || t.is_cuda() || t.is_meta()) && !is_special(t);
}

bool is_float32_or_less(at::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

// Whether any tensor that a guard is given is such a one.
template <class Predicate>
bool is_any(const Predicate& such, const at::Tensor& input, const at::Tensor& weight,
            const std::optional<at::Tensor>& bias, Operands operands) {
  if (such(input) || such(weight) || (bias && such(*bias))) return true;
  return std::any_of(operands.begin(), operands.end(), [&](Operand operand) { return operand && such(*operand); });
}

// Whether torch's type checks pass: one floating dtype, or dtypes that autocast will make one.
bool types_agree(const at::Tensor& a, const at::Tensor& b) {
  if (a.device() != b.device()) return false;
  if (!a.is_meta() && at::autocast::is_autocast_enabled(a.device().type()))
    return is_float32_or_less(a.scalar_type()) && is_float32_or_less(b.scalar_type());
  return a.scalar_type() == b.scalar_type() && (is_float32_or_less(a.scalar_type()) || a.scalar_type() == at::kDouble);
}

// Whether linear(input, weight, bias) surely succeeds.
bool linear_fits(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  if (!is_plain(input) || !is_plain(weight) || !types_agree(input, weight)) return false;
  if (input.dim() < 1 || weight.dim() != 2 || input.sym_size(-1) != weight.sym_size(1)) return false;
  if (!bias) return true;
  return is_plain(*bias) && types_agree(input, *bias) && bias->dim() == 1 && bias->sym_size(0) == weight.sym_size(0);
}

// Whether `shape` and `other` surely broadcast; then `shape` becomes the result's.
bool broadcast(at::DimVector& shape, at::IntArrayRef other) {
  if (other.size() > shape.size()) shape.insert(shape.begin(), other.size() - shape.size(), 1);
  for (std::size_t back = 1; back <= other.size(); ++back) {
    auto& size = shape[shape.size() - back];
    const auto theirs = other[other.size() - back];
    if (size != theirs && size != 1 && theirs != 1) return false;
    if (size == 1) size = theirs;
  }
  return true;
}

// Whether torch surely knows what comes of it and one of the linear's dtype. Not of rare dtypes: for many of its operations it has no code
// for these, nor for complex numbers of halves.
bool goes_with(const at::Tensor& operand, at::ScalarType linear) {
  const at::ScalarType type = operand.scalar_type();
  if (at::isComplexType(type)) return type != at::kComplexHalf && (linear == at::kFloat || linear == at::kDouble);
  return is_float32_or_less(type) || type == at::kDouble || type == at::kBool || type == at::kByte ||
         type == at::kChar || type == at::kShort || type == at::kInt || type == at::kLong;
}

// The shape of the chain's steps so far, where it can be told from the operands that eager raises nothing.
std::optional<at::DimVector> shape_without_work(const at::Tensor& input, const at::Tensor& weight,
                                                const std::optional<at::Tensor>& bias, Operands operands) {
  if (!linear_fits(input, weight, bias)) return std::nullopt;
  at::DimVector shape(input.sizes());
  shape.back() = weight.size(0);
  for (const auto& operand : operands) {
    if (!operand) continue;
    // A 0-dimensional tensor of the CPU goes with any device.
    const bool fits = is_plain(*operand) && goes_with(*operand, input.scalar_type()) &&
                      (operand->device() == input.device() || (operand->dim() == 0 && operand->is_cpu()));
    if (!fits || !broadcast(shape, operand->sizes())) return std::nullopt;
  }
  return shape;
}

// To the last stride: is_contiguous() does not look at those of dimensions of size 1, which an operation hands on too.
bool has_strides_of_its_own(const at::Tensor& t) {
  std::int64_t contiguous = 1;
  for (std::int64_t i = t.dim() - 1; i >= 0; --i) {
    if (t.stride(i) != contiguous) return true;
    contiguous *= std::max<std::int64_t>(t.size(i), 1);
  }
  return false;
}

// Whether an operand may give a result its strides: torch gives them to a sum or a product from the left operand, where that is as large.
bool may_lie_across(Operands operands) {
  return std::any_of(operands.begin(), operands.end(),
                     [](Operand operand) { return operand && operand->dim() > 1 && has_strides_of_its_own(*operand); });
}

bool uniform(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
             Operands operands) {
  if (!linear_fits(input, weight, bias) || input.dim() != 2) return false;
  if (!input.is_meta() && at::autocast::is_autocast_enabled(input.device().type())) return false;
  at::DimVector shape{input.size(0), weight.size(0)};
  const at::DimVector result = shape;
  for (const auto& operand : operands) {
    if (!operand) continue;
    if (!is_plain(*operand)) return false;
    if (operand->dim() == 0 && !at::isComplexType(operand->scalar_type())) continue;  // promotes nothing here
    if (!types_agree(input, *operand) || !broadcast(shape, operand->sizes())) return false;
  }
  return shape == result && !may_lie_across(operands);
}

// Steps 1 to `last` as their author spelled them, but for norms, which change no shape. `operands`: their vectors and scalars, None
// for a scalar that is a number.
at::Tensor run_steps(const Chain& chain, const at::Tensor& input, const at::Tensor& weight,
                     const std::optional<at::Tensor>& bias, Operands operands, std::int64_t last,
                     c10::string_view spelling) {
  const c10::IValue linear[3] = {input, weight, bias ? c10::IValue(*bias) : c10::IValue()};
  const c10::IValue number(1.0);
  std::vector<c10::IValue> values(static_cast<std::size_t>(last) + 1);
  std::vector<StepArguments> arguments(values.size());
  arguments[0].first = linear;
  std::size_t next = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (!chain.steps[i].is_operand()) continue;
    TORCH_CHECK(next < operands.size(), "tailor::check: ", chain.name, " step ", last, " has more operands");
    const std::optional<at::Tensor>& operand = operands[next++];
    values[i] = operand ? c10::IValue(*operand) : number;
    arguments[i].first = &values[i];
  }
  return reference(chain, arguments.data(), Norm::skipped, static_cast<int>(last), spelling);
}

// Whether a step up to `last` is a silu, which has no gradients of complex values.
bool says_silu(c10::string_view spelling, std::int64_t last) {
  const Spelling said(spelling);
  for (std::int64_t step = 1; step <= last; ++step)
    if (said.is_silu(static_cast<std::size_t>(step))) return true;
  return false;
}

// Past the norm it raises nothing. The norm's own error comes before that of a later step, and its statistics are written
// before that is raised; but the norm only runs in the op. Nothing that can be noticed stands between this and the op
// (passes/prove.cpp), which will raise all that eager raises: until then any shape will do.
std::tuple<at::Tensor, at::Tensor> check(const at::Tensor& input, const at::Tensor& weight,
                                         const std::optional<at::Tensor>& bias, Operands operands,
                                         c10::string_view chain_name, std::int64_t last, c10::string_view spelling) {
  const Chain* chain = find_chain(chain_name);
  TORCH_CHECK(chain != nullptr, "tailor::check: this library has no chain '", chain_name,
              "'; the file was written by a newer Tailor");
  TORCH_CHECK(last >= 0 && last <= chain->last(), "tailor::check: ", chain_name, " has no step ", last);
  const auto is_complex = [](const at::Tensor& t) { return t.is_complex(); };
  const bool refuses_gradients =
      at::GradMode::is_enabled() && is_any(is_complex, input, weight, bias, operands) && says_silu(spelling, last);
  const auto shape = shape_without_work(input, weight, bias, operands);
  if (shape && !refuses_gradients &&
      (Spelling(spelling).promotes_as_formula() || uniform(input, weight, bias, operands)))
    return {input, at::detail::empty_meta(*shape, input.scalar_type())};

  // Something is unusual: do the work, so that eager's own error rises, or the shape is known.
  // With gradients only where those may be what raises.
  const at::AutoGradMode mode(refuses_gradients || is_any(may_not_be_saved, input, weight, bias, operands));
  const auto run = [&] { return run_steps(*chain, input, weight, bias, operands, last, spelling).detach(); };
  const auto is_norm = [](const Step& step) { return step.is_norm(); };
  if (std::none_of(chain->steps.begin(), chain->steps.begin() + last + 1, is_norm)) return {input, run()};
  try {
    return {input, run()};
  } catch (const std::exception&) {
    return {input, at::detail::empty_meta({0}, input.scalar_type())};
  }
}

// Storages are compared by the memory that they span: two storages may share it (an array seen through DLPack). Where there is no
// memory, as with fake tensors, whose sizes may be symbols, the storage itself is what they may share.
bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  if (!a.has_storage() || !b.has_storage()) return true;
  if (a.storage().is_alias_of(b.storage())) return true;
  const auto span = [](const at::Tensor& t) {
    const auto* begin = static_cast<const char*>(t.storage().data());
    return std::pair(begin, begin + (begin == nullptr ? 0 : t.storage().nbytes()));
  };
  const auto [a_begin, a_end] = span(a);
  const auto [b_begin, b_end] = span(b);
  return a_begin < b_end && b_begin < a_end;
}

// Made in inference mode where the tensor was, and else outside of it: eager refuses to save the one for a backward, and
// to transpose some others, a sparse weight among them, while the mode is on.
at::Tensor copy_of(const at::Tensor& value) {
  std::optional<c10::InferenceMode> mode;
  if (value.is_inference() != c10::InferenceMode::is_enabled()) mode.emplace(value.is_inference());
  return value.clone();
}

at::Tensor unwritten(const at::Tensor& value, const at::Tensor& written) {
  if (!value.defined()) return value;  // `.grad` of a script may be: whoever reads it raises, naming his own argument
  return share_memory(value, written) ? copy_of(value) : value;
}

// As files have it that were fused when a list was taken.
at::Tensor unwritten_list(const at::Tensor& value, at::TensorList written) {
  for (const at::Tensor& target : written)
    if (at::Tensor held = unwritten(value, target); !held.is_same(value)) return held;
  return value;
}

template <auto function, class Written>
std::optional<at::Tensor> optional(const std::optional<at::Tensor>& value, Written written) {
  if (!value) return value;
  return function(*value, written);
}

bool wants_gradient(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    Operands operands) {
  const auto wants = [](const at::Tensor& t) { return t.requires_grad(); };
  return at::GradMode::is_enabled() && is_any(wants, input, weight, bias, operands);
}

// `inference_only`: with gradients the spelling overwrites what its own backward needs, which eager finds out there.
// `order_only`: nothing but the order of operands differs. It shows in strides, in what sizes that do not fit are called, and
// where an operation takes something on one side only.
bool uniform_op(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                Operands operands, bool inference_only, bool order_only) {
  if (inference_only && wants_gradient(input, weight, bias, operands)) return false;
  const auto is_complex = [](const at::Tensor& t) { return t.is_complex(); };  // of which silu refuses gradients
  if (order_only && is_any(is_complex, input, weight, bias, operands)) return false;
  if (order_only) return shape_without_work(input, weight, bias, operands) && !may_lie_across(operands);
  return uniform(input, weight, bias, operands);
}

// By name: torch takes it of what lies in a list that it may be written to wherever anything is (passes/rewrite.cpp).
std::tuple<at::Tensor, at::Tensor> check_each(const at::Tensor& input, const at::Tensor& weight, Operand bias,
                                              c10::string_view chain, std::int64_t last, c10::string_view spelling,
                                              Operand first, Operand second, Operand third, Operand fourth) {
  return check(input, weight, bias, std::array{first, second, third, fourth}, chain, last, spelling);
}

std::tuple<at::Tensor, at::Tensor> check_list(const at::Tensor& input, const at::Tensor& weight, Operand bias,
                                              const OperandList& operands, c10::string_view chain, std::int64_t last,
                                              c10::string_view spelling) {
  return check(input, weight, bias, operands.vec(), chain, last, spelling);
}

bool uniform_each(const at::Tensor& input, const at::Tensor& weight, Operand bias, bool inference_only, bool order_only,
                  Operand first, Operand second, Operand third, Operand fourth) {
  return uniform_op(input, weight, bias, std::array{first, second, third, fourth}, inference_only, order_only);
}

bool uniform_list(const at::Tensor& input, const at::Tensor& weight, Operand bias, const OperandList& operands,
                  bool inference_only, bool order_only) {
  return uniform_op(input, weight, bias, operands.vec(), inference_only, order_only);
}

// torch's own is asked, which knows what vmap and others have wrapped. `spelling` is for unfuse.
at::Tensor as_silu(const at::Tensor& value, c10::string_view /*spelling*/) {
  if (value.is_complex()) at::silu(value);
  return value;
}

template <class Function>
void define_guard(torch::Library& library, const char* schema, const char* name, Function* function) {
  library.def(schema);
  library.impl(name, function);
  library.impl(name, torch::dispatch(c10::DispatchKey::Python, function));
  // Of what a transform does not know vmap calls it once for each element, and functionalize refuses what may return its argument.
  library.impl(name, torch::dispatch(c10::DispatchKey::FuncTorchDynamicLayerFrontMode, function));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tailor, library) {
  if (is_second_copy()) return;
#define OPERANDS "Tensor? first=None, Tensor? second=None, Tensor? third=None, Tensor? fourth=None"
  define_guard(library,
               "check.each(Tensor(a) input, Tensor weight, Tensor? bias, str chain, int last, str spelling, " OPERANDS
               ") -> (Tensor(a), Tensor)",
               "check.each", check_each);
  define_guard(library,
               "check(Tensor(a) input, Tensor weight, Tensor? bias, Tensor?[] operands, str chain, int last, "
               "str spelling) -> (Tensor(a), Tensor)",
               "check", check_list);
  define_guard(library, "unwritten.one(Tensor(a) value, Tensor written) -> Tensor(a)", "unwritten.one", unwritten);
  define_guard(library, "unwritten.optional_one(Tensor(a)? value, Tensor written) -> Tensor(a)?",
               "unwritten.optional_one", optional<unwritten, const at::Tensor&>);
  define_guard(library, "unwritten(Tensor(a) value, Tensor[] written) -> Tensor(a)", "unwritten", unwritten_list);
  define_guard(library, "unwritten.optional(Tensor(a)? value, Tensor[] written) -> Tensor(a)?", "unwritten.optional",
               optional<unwritten_list, at::TensorList>);
  define_guard(library,
               "uniform.each(Tensor input, Tensor weight, Tensor? bias, bool inference_only=False, "
               "bool order_only=False, " OPERANDS ") -> bool",
               "uniform.each", uniform_each);
#undef OPERANDS
  define_guard(library,
               "uniform(Tensor input, Tensor weight, Tensor? bias, Tensor?[] operands, bool inference_only=False, "
               "bool order_only=False) -> bool",
               "uniform", uniform_list);
  define_guard(library, "as_silu(Tensor(a) value, str spelling) -> Tensor(a)", "as_silu", as_silu);
}

}  // namespace tailor
