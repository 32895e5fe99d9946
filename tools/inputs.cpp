#include "inputs.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "archive.h"
#include "failure.h"

namespace tailor::tool {
namespace {

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 10> dtypes{{
    {"float64", at::kDouble},
    {"float32", at::kFloat},
    {"bfloat16", at::kBFloat16},
    {"float16", at::kHalf},
    {"int64", at::kLong},
    {"int32", at::kInt},
    {"int16", at::kShort},
    {"int8", at::kChar},
    {"uint8", at::kByte},
    {"bool", at::kBool},
}};

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw std::invalid_argument("input '" + printable(text) + "': " + printable(why) +
                              "; a tensor is written like float32[16,8192], a number like 3, 0.5 or true");
}

std::string known_dtypes() {
  std::string names;
  for (const auto& [name, dtype] : dtypes) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

at::ScalarType parse_dtype(const std::string& text, std::string_view name) {
  for (const auto& [known, dtype] : dtypes)
    if (name == known) return dtype;
  refuse(text, "'" + std::string(name) + "' is not one of " + known_dtypes());
}

int64_t parse_size(const std::string& text, std::string_view part) {
  while (part.starts_with(' ')) part.remove_prefix(1);
  while (part.ends_with(' ')) part.remove_suffix(1);
  int64_t size = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), size);
  if (error == std::errc::result_out_of_range) refuse(text, "the size " + std::string(part) + " is too large");
  if (part.empty() || error != std::errc() || end != part.data() + part.size() || size < 0)
    refuse(text, "'" + std::string(part) + "' is not a size");
  return size;
}

c10::IValue parse_number(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  const char* const end = text.data() + text.size();
  const auto read = [&](auto& number) {
    const auto [stopped, error] = std::from_chars(text.data(), end, number);
    return error == std::errc() && stopped == end;
  };
  if (int64_t whole = 0; read(whole)) return whole;
  if (double number = 0; read(number)) return number;
  return {};
}

// A system promises more memory than it has, and ends whoever uses it.
void require_memory(const std::string& text, const InputText& input, int64_t elements) {
  constexpr int least = 4;  // there are at once of what is verified: it, what is made of it twice, and in float64
  const auto pages = static_cast<double>(sysconf(_SC_PHYS_PAGES)), page = static_cast<double>(sysconf(_SC_PAGESIZE));
  const double bytes = static_cast<double>(elements) * static_cast<double>(c10::elementSize(input.dtype));
  if (least * bytes <= pages * page) return;
  std::ostringstream why;
  why << std::fixed << std::setprecision(1) << "it has " << bytes / (1 << 30) << " GiB, of which there are " << least
      << " and more while a model is verified; this machine's memory has " << pages * page / (1 << 30);
  refuse(text, why.str());
}

}  // namespace

InputText parse_input(const std::string& text) {
  if (auto number = parse_number(text); !number.isNone()) return {at::kDouble, {}, std::move(number)};
  const std::string_view view = text;
  const auto open = view.find('[');
  if (open == std::string_view::npos) refuse(text, "there is no [");
  if (!view.ends_with(']')) refuse(text, "it does not end with ]");
  InputText input{parse_dtype(text, view.substr(0, open)), {}};
  std::string_view rest = view.substr(open + 1, view.size() - open - 2);
  if (rest.empty()) return input;
  int64_t elements = 1;
  while (true) {
    const auto comma = rest.find(',');
    input.sizes.push_back(parse_size(text, rest.substr(0, comma)));
    // Eight bytes is the widest element; a tensor's bytes are counted in 64 bits.
    if (__builtin_mul_overflow(elements, input.sizes.back(), &elements) ||
        elements > std::numeric_limits<int64_t>::max() / 8)
      refuse(text, "it has more elements than a tensor can have");
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  require_memory(text, input, elements);
  return input;
}

at::Tensor sample(const InputText& input, at::Generator generator) try {
  const auto options = at::TensorOptions().dtype(input.dtype);
  if (input.dtype == at::kBool) return at::randint(0, 2, input.sizes, std::move(generator), options);
  if (at::isIntegralType(input.dtype, /*includeBool=*/false))
    return at::randint(0, 10, input.sizes, std::move(generator), options);
  // Drawn in float32 so that one seed means one input, rounded to its dtype.
  return at::randn(input.sizes, std::move(generator), at::kFloat).to(input.dtype);
} catch (const c10::Error&) {  // of sizes that were checked: there are as many bytes, but not for this process
  throw std::invalid_argument("there is no memory for an input of " +
                              std::to_string(c10::multiply_integers(input.sizes)) + " elements");
}

c10::IValue fitted(const c10::IValue& value, const c10::TypePtr& type) {
  const auto has_type = [](const c10::IValue& element, const c10::TypePtr& wanted) {
    return element.type()->isSubtypeOf(*wanted);
  };
  if (const auto optional = type->cast<c10::OptionalType>())
    return value.isNone() ? value : fitted(value, optional->getElementType());
  if (type->kind() == c10::TypeKind::FloatType && value.isInt()) return static_cast<double>(value.toInt());
  if (const auto list = type->cast<c10::ListType>(); list && value.isList()) {
    c10::impl::GenericList typed(list->getElementType());
    for (const auto& each : value.toListRef()) {
      const auto element = fitted(each, list->getElementType());
      if (!has_type(element, list->getElementType())) return value;
      typed.push_back(element);
    }
    return typed;
  }
  if (const auto tuple = type->cast<c10::TupleType>(); tuple && value.isTuple()) {
    auto elements = value.toTupleRef().elements().vec();
    if (elements.size() != tuple->elements().size()) return value;
    for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = fitted(elements[i], tuple->elements()[i]);
    return tuple->schema() ? c10::ivalue::Tuple::createNamed(std::move(elements), tuple)
                           : c10::ivalue::Tuple::create(std::move(elements));
  }
  if (const auto dict = type->cast<c10::DictType>(); dict && value.isGenericDict()) {
    c10::impl::GenericDict typed(dict->getKeyType(), dict->getValueType());
    for (const auto& entry : value.toGenericDict()) {
      const auto element = fitted(entry.value(), dict->getValueType());
      if (!has_type(entry.key(), dict->getKeyType()) || !has_type(element, dict->getValueType())) return value;
      typed.insert(entry.key(), element);
    }
    return typed;
  }
  return value;
}

std::vector<c10::IValue> read_inputs(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::invalid_argument(path + ": cannot be opened; --input-file takes a file that torch.save wrote");
  return read_inputs({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}, path);
}

std::vector<c10::IValue> read_inputs(const std::vector<char>& bytes, const std::string& path) {
  try {
    check_tensor_archive(MemoryBytes({reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()}), path);
  } catch (const Failure& failure) {
    throw std::invalid_argument(failure.what());
  }
  c10::IValue value;
  try {
    value = torch::jit::pickle_load(bytes);
  } catch (const std::exception& error) {
    // What it has asserted in vain says nothing to a user.
    std::string why = last_line(error.what());
    if (why.find("INTERNAL ASSERT FAILED") != std::string::npos) why = "there is something in it that is none";
    throw std::invalid_argument(path + ": is no file that torch.save wrote of tensors (" + why + "); " + what_to_save);
  }
  if (value.isTuple()) return value.toTupleRef().elements().vec();
  if (value.isList()) return value.toListRef().vec();
  if (value.isTensor()) return {value};
  throw std::invalid_argument(path + ": holds a " + value.tagKind() +
                              "; one tensor, or a tuple or list with one element for each argument, was expected");
}

std::string last_line(const std::string& what) {
  // torch appends the C++ stack, where it has one, after this line.
  std::string_view text = std::string_view(what).substr(0, what.find("\nException raised from"));
  while (text.ends_with('\n') || text.ends_with(' ')) text.remove_suffix(1);
  const auto newline = text.rfind('\n');
  return std::string(newline == std::string_view::npos ? text : text.substr(newline + 1));
}

}  // namespace tailor::tool
