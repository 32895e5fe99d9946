#include "compare.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/class_type.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <sstream>
#include <unordered_set>

namespace tailor::tool {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

double epsilon(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::ldexp(1.0, -52);
    case at::kFloat:
      return std::ldexp(1.0, -23);
    case at::kHalf:
      return std::ldexp(1.0, -10);
    case at::kBFloat16:
      return std::ldexp(1.0, -7);
    default:
      return 0;
  }
}

std::string layout(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << tensor.sizes();
  if (tensor.layout() == at::kStrided)
    text << " with strides " << tensor.strides();
  else
    text << " of layout " << tensor.layout();
  text << " on " << tensor.device();
  return text.str();
}

// The largest absolute error of `value`, where `counted` is set. Equal infinities and NaN in the same place are no error.
double largest_error(const at::Tensor& value, const at::Tensor& exact, const at::Tensor& counted) {
  auto error = (value - exact).abs();
  error = error.masked_fill(at::isnan(error), std::numeric_limits<double>::infinity());
  error = error.masked_fill((value == exact) | (value.isnan() & exact.isnan()) | ~counted, 0);
  return error.max().item<double>();
}

double largest_finite(const at::Tensor& piece) {
  const auto size = piece.abs();
  return size.masked_fill(~at::isfinite(size), 0).max().item<double>();
}

// Visits tensors of the same sizes piece by piece, in float64: a weight of 8192 x 8192 should not be held in float64 ten
// times over.
template <class Visit, class... Tensors>
void in_pieces(Visit visit, const at::Tensor& first, const Tensors&... others) {
  constexpr int64_t piece = 1 << 20;
  const auto wide = [](const at::Tensor& flat, int64_t begin, int64_t count) {
    return flat.narrow(0, begin, count).to(at::kDouble);
  };
  const auto over = [&](const auto&... flat) {
    for (int64_t begin = 0; begin < first.numel(); begin += piece)
      visit(wide(flat, begin, std::min(piece, first.numel() - begin))...);
  };
  over(first.detach().reshape({-1}), others.detach().reshape({-1})...);
}

std::string entry_of(const std::string& name, const c10::IValue& key) {
  std::ostringstream text;
  text << name << "[" << key << "]";
  return text.str();
}

std::string entry_of(const std::string& name, std::size_t i) { return name + "[" + std::to_string(i) + "]"; }

// Whether a dictionary's keys are those that another run makes, too.
bool are_names(const c10::impl::GenericDict& dict) {
  return std::all_of(dict.begin(), dict.end(), [](const auto& entry) {
    return entry.key().isString() || entry.key().isInt() || entry.key().isBool();
  });
}

// What a value is made of, with a name for each part; nothing of a tensor, a number or a string.
using Seen = std::unordered_set<const void*>;  // objects, which may have themselves, or another twice
std::vector<std::pair<std::string, c10::IValue>> parts_of(const c10::IValue& value, const std::string& name,
                                                          Seen& seen) {
  std::vector<std::pair<std::string, c10::IValue>> parts;
  const auto add_all = [&](const auto& elements) {
    for (const auto& element : elements) parts.emplace_back(entry_of(name, parts.size()), element);
  };
  if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_nested()) {
    add_all(value.toTensor().unbind());
  } else if (value.isTuple()) {
    add_all(value.toTupleRef().elements());
  } else if (value.isList()) {
    add_all(value.toList().vec());
  } else if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    const bool by_name = are_names(dict);
    for (const auto& entry : dict) {
      if (by_name) {
        parts.emplace_back(entry_of(name, entry.key()), entry.value());
      } else {  // in the order in which they were made
        parts.emplace_back("a key of " + name, entry.key());
        parts.emplace_back(entry_of(name, parts.size() / 2), entry.value());
      }
    }
    if (by_name)
      std::sort(parts.begin(), parts.end(), [](const auto& one, const auto& other) { return one.first < other.first; });
  } else if (value.isFuture()) {
    value.toFuture()->waitAndThrow();
    parts.emplace_back(name, value.toFuture()->value());
  } else if (value.isObject() && seen.insert(&value.toObjectRef()).second) {
    const auto& object = value.toObjectRef();
    for (std::size_t i = 0; i < object.slots().size(); ++i)
      parts.emplace_back(name + "." + object.type()->getAttributeName(i), object.getSlot(i));
  }
  return parts;
}

std::vector<Leaf> tensors_in(const c10::IValue& value, const std::string& name, Seen& seen) {
  std::vector<Leaf> found;
  for (const auto& [place, part] : parts_of(value, name, seen)) {
    auto more = tensors_in(part, place, seen);
    found.insert(found.end(), more.begin(), more.end());
  }
  if (value.isTensor() && !(value.toTensor().defined() && value.toTensor().is_nested()))
    found.push_back({name, value.toTensor()});
  return found;
}

std::optional<std::string> other_shape(const c10::IValue& fused, const c10::IValue& eager, const std::string& name,
                                       const Computed& of, Seen& our_seen, Seen& their_seen) {
  if (fused.tagKind() != eager.tagKind())
    return name + " is a " + fused.tagKind() + ", eager's is a " + eager.tagKind();
  const auto our_parts = parts_of(fused, name, our_seen), their_parts = parts_of(eager, name, their_seen);
  if (our_parts.size() != their_parts.size())
    return name + " has " + std::to_string(our_parts.size()) + " elements, eager's has " +
           std::to_string(their_parts.size());
  for (std::size_t i = 0; i < our_parts.size(); ++i) {
    const auto& [place, part] = their_parts[i];
    if (our_parts[i].first != place) return place + " is missing";
    if (auto different = other_shape(our_parts[i].second, part, place, of, our_seen, their_seen)) return different;
  }
  if (eager.isDouble()) {  // such as an `item()`: computed in another order, it may have other last digits
    const double ours = fused.toDouble(), theirs = eager.toDouble();
    const double error = std::abs(ours - theirs);
    const double share = 3 * std::sqrt(std::max(epsilon(of.dtype), epsilon(at::kFloat)));
    if (ours == theirs || (std::isnan(ours) && std::isnan(theirs)) ||
        error <= share * std::max(std::abs(theirs), of.size))
      return std::nullopt;
    return name + " differs by " + number(error);
  }
  const bool comparable = eager.isInt() || eager.isBool() || eager.isString();
  if (comparable && fused != eager) return name + " is another " + eager.tagKind();
  return std::nullopt;
}

}  // namespace

bool are_bytes(at::ScalarType dtype) {
  using enum at::ScalarType;
  return at::isBitsType(dtype) || dtype == Float4_e2m1fn_x2 || (dtype >= UInt1 && dtype <= UInt7) ||
         (dtype >= Int1 && dtype <= Int7);
}

bool are_floating(at::ScalarType dtype) { return at::isFloatingType(dtype) && !are_bytes(dtype); }

at::Tensor dense(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta()) return {};
  const auto values = tensor.detach();
  return values.layout() == at::kStrided ? values : values.to_dense();
}

double largest(const at::Tensor& tensor) {
  double found = 0;
  if (const auto numbers = dense(tensor); numbers.defined())
    in_pieces([&](const at::Tensor& piece) { found = std::max(found, largest_finite(piece)); }, numbers);
  return found;
}

at::ScalarType coarser(at::ScalarType one, at::ScalarType other) { return epsilon(other) > epsilon(one) ? other : one; }

double unit_in_last_place(at::ScalarType dtype, double magnitude) {
  if (magnitude == 0) return 0;
  return epsilon(dtype) * std::exp2(std::floor(std::log2(magnitude)));
}

std::optional<std::string> difference(const Triple& value, const Tolerance& tolerance) {
  const auto& [name, fused, eager, exact, strides] = value;
  if (fused.defined() != eager.defined()) return name + (fused.defined() ? " is there, eager has none" : " is missing");
  if (!fused.defined()) return std::nullopt;
  const bool strided = eager.layout() == at::kStrided;
  if (fused.sizes() != eager.sizes() || fused.scalar_type() != eager.scalar_type() ||
      fused.layout() != eager.layout() || (strides && strided && fused.strides() != eager.strides()) ||
      fused.device() != eager.device())
    return name + " is " + layout(fused) + ", eager's is " + layout(eager);
  if (eager.is_meta()) return std::nullopt;
  if (are_bytes(eager.scalar_type())) {
    const bool same = at::equal(fused.detach().view(at::kByte), eager.detach().view(at::kByte));
    return same ? std::nullopt : std::optional(name + " has other bytes");
  }
  if (!strided) return difference({name, dense(fused), dense(eager), dense(exact), false}, tolerance);
  const auto dtype = fused.scalar_type();
  if (at::isComplexType(dtype)) {
    const auto parts = [](const at::Tensor& t) {
      return t.defined() && t.is_complex() ? at::view_as_real(t.detach().resolve_conj()) : at::Tensor();
    };
    return difference({name, parts(fused), parts(eager), parts(exact), false}, tolerance);
  }
  if (!at::isFloatingType(dtype)) {  // right or wrong, also where a double cannot tell two integers apart
    if (at::equal(fused.detach(), eager.detach())) return std::nullopt;
    // But an index of the largest, say, may hang on a rounding: where it does, eager's is not always float64's either.
    if (exact.defined() && exact.sizes() == eager.sizes() && exact.scalar_type() == dtype) {
      const auto others = [&](const at::Tensor& than) { return (than != value.exact).sum().item<double>(); };
      if (others(eager) > 0 && others(fused) <= tolerance.times * others(eager)) return std::nullopt;
    }
    return name + " differs; it is of " + c10::toString(dtype) + " and should be equal";
  }

  double fused_error = 0, eager_error = 0, magnitude = tolerance.largest;
  if (!exact.defined() || exact.sizes() != eager.sizes()) {  // sizes that depend on values are no referee either
    in_pieces(
        [&](const at::Tensor& ours, const at::Tensor& theirs) {
          fused_error = std::max(fused_error, largest_error(ours, theirs, at::ones_like(ours, at::kBool)));
          magnitude = std::max(magnitude, largest_finite(theirs));
        },
        fused, eager);
    const double allowed = tolerance.times * std::sqrt(epsilon(coarser(dtype, tolerance.computed))) * magnitude;
    if (fused_error <= allowed) return std::nullopt;
    return name + " differs from eager's by " + number(fused_error) + ", " + number(allowed) +
           " is allowed where float64 is no referee";
  }

  in_pieces(
      [&](const at::Tensor& ours, const at::Tensor& theirs, const at::Tensor& referee) {
        // Where eager overflows and float64 does not, the fused op may do either.
        const auto counted = at::isfinite(theirs) | ~at::isfinite(referee);
        fused_error = std::max(fused_error, largest_error(ours, referee, counted));
        eager_error = std::max(eager_error, largest_error(theirs, referee, counted));
        magnitude = std::max(magnitude, largest_finite(referee));
      },
      fused, eager, exact);
  const double floor =
      dtype == at::kDouble ? tolerance.of_float64 * magnitude : tolerance.ulps * unit_in_last_place(dtype, magnitude);
  if (fused_error <= std::max(tolerance.times * eager_error, floor)) return std::nullopt;
  return name + " differs by " + number(fused_error) + ", eager's own error is " + number(eager_error);
}

std::vector<Leaf> tensors_in(const c10::IValue& value, const std::string& name) {
  Seen seen;
  return tensors_in(value, name, seen);
}

std::optional<std::string> other_shape(const c10::IValue& fused, const c10::IValue& eager, const std::string& name,
                                       const Computed& of) {
  Seen ours, theirs;
  return other_shape(fused, eager, name, of, ours, theirs);
}

c10::IValue copy_as(const c10::IValue& value, std::optional<at::ScalarType> floating) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    if (!tensor.defined()) return value;
    auto copy = tensor.detach().clone();
    return floating && are_floating(copy.scalar_type()) ? copy.to(*floating) : copy;
  }
  if (value.isTuple()) {
    std::vector<c10::IValue> elements;
    for (const auto& element : value.toTupleRef().elements()) elements.push_back(copy_as(element, floating));
    const auto type = value.type()->cast<c10::TupleType>();
    return type && type->schema() ? c10::ivalue::Tuple::createNamed(std::move(elements), type)
                                  : c10::ivalue::Tuple::create(std::move(elements));
  }
  if (value.isList()) {
    auto list = value.toList().copy();
    for (std::size_t i = 0; i < list.size(); ++i) list.set(i, copy_as(list.get(i), floating));
    return list;
  }
  if (value.isGenericDict()) {
    auto dict = value.toGenericDict().copy();
    for (const auto& entry : value.toGenericDict())
      dict.insert_or_assign(entry.key(), copy_as(entry.value(), floating));
    return dict;
  }
  return value;
}

}  // namespace tailor::tool
