#include "pass_compare.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>

namespace tailor::fuzz {
namespace {

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// But for silu's refusal, which README.md names, and an autograd node's name.
bool same_error(const std::string& wanted, const std::string& got) {
  if (wanted == got) return true;
  if (contains(wanted, "modified by an inplace operation") && contains(got, "modified by an inplace operation"))
    return true;
  return contains(wanted, "silu") && contains(wanted, "not implemented for");
}

struct Numbers {
  std::vector<double> values;
  double largest = 0;  // of the finite ones
};

Numbers numbers_of(const at::Tensor& tensor) {
  Numbers result;
  const at::Tensor dense = tensor.detach().to(at::kDouble).contiguous();
  const double* data = dense.const_data_ptr<double>();
  result.values.assign(data, data + dense.numel());
  for (const double v : result.values)
    if (std::isfinite(v)) result.largest = std::max(result.largest, std::abs(v));
  return result;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.is_contiguous() && b.is_contiguous() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

bool same(double a, double b, double room) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= room;
}

class Comparer {
 public:
  Comparer(const Model& model, const Terms& terms) : type_(scalar_type(model.type)), terms_(terms) {}

  // `scale`: of what the values were made, where they may have cancelled.
  std::string compare(const at::Tensor& wanted, const at::Tensor& got, const at::Tensor* exact, bool strides,
                      double scale = 0) const {
    if (!wanted.defined() && !got.defined()) return "";
    std::ostringstream text;
    if (wanted.defined() != got.defined())
      text << (wanted.defined() ? "is missing" : "should not be there");
    else if (wanted.scalar_type() != got.scalar_type())
      text << "dtype " << got.scalar_type() << " instead of " << wanted.scalar_type();
    else if (wanted.sizes() != got.sizes())
      text << "shape " << got.sizes() << " instead of " << wanted.sizes();
    else if (strides && wanted.strides() != got.strides())
      text << "strides " << got.strides() << " instead of " << wanted.strides();
    else if (wanted.requires_grad() != got.requires_grad() && !is_excused(got))
      text << (got.requires_grad() ? "wants" : "does not want") << " a gradient";
    else if (same_bits(wanted, got))
      return "";
    else if (type_ != at::kDouble && wanted.is_floating_point())
      return exact ? inexact(wanted, got, *exact, scale) : "";
    else
      return sharp(wanted, got, scale);
    return text.str();
  }

 private:
  static std::string sharp(const at::Tensor& wanted, const at::Tensor& got, double scale) {
    const Numbers a = numbers_of(wanted), b = numbers_of(got);
    const double precision = wanted.scalar_type() == at::kDouble ? 1e-8 : wanted.is_floating_point() ? 1e-3 : 0;
    const double room = precision * (1 + std::max(a.largest, scale));
    for (std::size_t i = 0; i < a.values.size(); ++i)
      if (!same(a.values[i], b.values[i], room)) return distance(i, a.values[i], b.values[i]);
    return "";
  }

  std::string inexact(const at::Tensor& wanted, const at::Tensor& got, const at::Tensor& exact, double scale) const {
    if (exact.sizes() != wanted.sizes()) return "";
    const Numbers a = numbers_of(wanted), b = numbers_of(got), e = numbers_of(exact);
    double error = 0;
    for (std::size_t i = 0; i < a.values.size(); ++i) {
      if (!std::isfinite(a.values[i])) return "";  // it has overflowed
      error = std::max(error, std::abs(a.values[i] - e.values[i]));
    }
    if (error > 0.05 * (1 + e.largest)) return "";  // noise: rounding has decided, on both sides
    const double unit = type_ == at::kFloat ? 0x1p-23 : type_ == at::kHalf ? 0x1p-10 : 0x1p-7;
    // What cancels, such as the gradient of a vector added right before a norm or a group of nearly equal values, leaves
    // only the rounding; there eager may have the luck.
    const double units = type_ == at::kFloat ? 1024 : scale > 0 ? 512 : 64;
    const double room = 6 * error + units * unit * (1 + std::max(e.largest, scale));
    for (std::size_t i = 0; i < a.values.size(); ++i)
      if (!same(e.values[i], b.values[i], room))
        return distance(i, e.values[i], b.values[i]) + ", eager's error is " + std::to_string(error);
    return "";
  }

  static std::string distance(std::size_t i, double wanted, double got) {
    std::ostringstream text;
    text.precision(12);
    text << "element " << i << " is " << got << " instead of " << wanted;
    return text.str();
  }

  bool is_excused(const at::Tensor& got) const {
    return terms_.values_only || (terms_.may_say_it_wants && got.requires_grad());
  }

  at::ScalarType type_;
  const Terms& terms_;
};

}  // namespace

std::string difference(const Model& model, const Done& plain, const Done& fused, const Done* exact,
                       const Terms& terms) {
  const Outcome& wanted = plain.outcome;
  const Outcome& got = fused.outcome;
  if (exact && exact->outcome.error != wanted.error) exact = nullptr;
  const bool refused = wanted.backward && contains(wanted.error, "modified by an inplace operation");
  // Nobody reads what the refused write would have changed: torch drops it from a compiled file, and the refusal with it.
  if (terms.from_file && got.error.empty() && contains(wanted.error, "A view was created in no_grad mode")) return "";
  // README.md, limits: an op that holds a copy of an operand as it was before a write gives the gradient of that. If another
  // refusal comes after that one, it is then the first.
  const bool excused = refused && (terms.from_file || got.held || terms.values_only) && got.backward;
  // Of two refusals in backward the first is that of the thread that was first.
  const bool both = !wanted.error.empty() && !got.error.empty();
  const bool either = both && (terms.any_error || (terms.forks && wanted.backward && got.backward));
  if (!excused && !either && !same_error(wanted.error, got.error))
    return "raised '" + got.error + "' instead of '" + wanted.error + "'";
  const bool silu = wanted.error != got.error && contains(wanted.error, "silu");
  if (silu) return "";

  const Comparer comparer(model, terms);
  if (wanted.values.size() != got.values.size()) return "another number of results";
  for (std::size_t i = 0; i < wanted.values.size(); ++i)
    if (auto text =
            comparer.compare(wanted.values[i], got.values[i], exact ? &exact->outcome.values[i] : nullptr, true);
        !text.empty())
      return "result " + std::to_string(i) + ": " + text;
  if (auto text = comparer.compare(wanted.input, got.input, exact ? &exact->outcome.input : nullptr, false);
      !text.empty())
    return "the input afterwards: " + text;

  const auto theirs = plain.side.state(), mine = fused.side.state();
  std::vector<Side::State> exactly;
  if (exact) exactly = exact->side.state();
  for (std::size_t i = 0; i < theirs.size(); ++i)
    if (auto text = comparer.compare(theirs[i].value, mine[i].value, exact ? &exactly[i].value : nullptr, false);
        !text.empty())
      return theirs[i].name + ": " + text;

  if (!wanted.backward || !wanted.error.empty() || !got.error.empty()) return "";
  if (terms.values_only || terms.gradients_may_differ) return "";
  double scale = 0;
  for (const auto& [name, value] : theirs)
    if (value.grad().defined()) scale = std::max(scale, numbers_of(value.grad()).largest);
  const auto gradients = [&](const at::Tensor& w, const at::Tensor& g, const at::Tensor* e) {
    if (terms.zeros_for_none && !w.grad().defined() && g.grad().defined() && g.grad().eq(0).all().item().toBool())
      return std::string();
    const at::Tensor e_grad = e ? e->grad() : at::Tensor();
    return comparer.compare(w.grad(), g.grad(), e_grad.defined() ? &e_grad : nullptr, false, scale);
  };
  for (std::size_t i = 0; i < theirs.size(); ++i)
    if (auto text = gradients(theirs[i].value, mine[i].value, exact ? &exactly[i].value : nullptr); !text.empty())
      return "gradient of " + theirs[i].name + ": " + text;
  if (auto text = gradients(wanted.input, got.input, exact ? &exact->outcome.input : nullptr); !text.empty())
    return "gradient of the input: " + text;
  return "";
}

}  // namespace tailor::fuzz
