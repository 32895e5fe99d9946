#include "same_module.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_pooling.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <cstring>
#include <set>
#include <vector>

namespace tailor::tool {
namespace {

using Difference = std::optional<std::string>;

// The tensor without what it only repeats: a buffer that was expanded has a few values and may have billions of elements.
at::Tensor without_repeats(at::Tensor tensor) {
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.stride(i) == 0 && tensor.size(i) > 1) tensor = tensor.narrow(i, 0, 1);
  }
  return tensor;
}

// From the first element in memory to the last. Windows that overlap have far more elements than that.
std::size_t span_of(const at::Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return tensor.numel() == 0 ? 0 : static_cast<std::size_t>(last + 1) * tensor.itemsize();
}

// Bits, so that NaNs and signed zeros count as what they are. Of tensors of one dtype, with the same sizes and strides.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor x = without_repeats(a.detach()), y = without_repeats(b.detach());
  // Where even what lies between the elements is the same, as it is in a file that was read back, nothing is copied.
  if (x.is_cpu() && y.is_cpu() && x.is_conj() == y.is_conj() && x.is_neg() == y.is_neg()) {
    const std::size_t span = span_of(x);
    if (span == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), span) == 0) return true;
  }
  x = x.cpu().resolve_conj().resolve_neg().contiguous();
  y = y.cpu().resolve_conj().resolve_neg().contiguous();
  return x.nbytes() == y.nbytes() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

Difference tensors(const std::string& path, const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return path + " is a tensor in one only";
  if (!a.defined()) return {};
  if (a.scalar_type() != b.scalar_type()) return path + " has another dtype";
  if (a.sizes() != b.sizes()) return path + " has another shape";
  if (a.layout() != b.layout()) return path + " has another layout";
  if (a.device() != b.device()) return path + " is on another device";
  if (a.requires_grad() != b.requires_grad()) return path + " differs in requires_grad";
  if (a.is_quantized()) return at::equal(a, b) ? Difference() : path + " has other values";
  if (a.layout() == at::kSparse) {
    if (auto found = tensors(path + "'s indices", a._indices(), b._indices())) return found;
    return tensors(path + "'s values", a._values(), b._values());
  }
  if (a.layout() != at::kStrided) return {};  // torch saves no other layout
  if (a.strides() != b.strides()) return path + " has other strides";
  if (a.is_meta()) return {};  // it has no values
  return same_bits(a, b) ? Difference() : path + " has other values";
}

void collect(const torch::jit::Block* block, std::vector<std::string>& operators) {
  for (const torch::jit::Node* node : block->nodes()) {
    // torch writes a constant list as its elements, so the nodes of the language itself come and go.
    if (!node->kind().is_prim()) operators.emplace_back(node->kind().toQualString());
    for (const torch::jit::Block* inner : node->blocks()) collect(inner, operators);
  }
}

// What stands behind a raise in its block is never run, and torch leaves it out as soon as it compiles a file.
void cut_behind_raises(torch::jit::Block* block) {
  torch::jit::Node* raise = nullptr;
  for (torch::jit::Node* node : block->nodes()) {
    for (torch::jit::Block* inner : node->blocks()) cut_behind_raises(inner);
    if (raise == nullptr && node->kind() == c10::prim::RaiseException) raise = node;
  }
  if (raise == nullptr) return;
  for (std::size_t i = 0; i < block->outputs().size(); ++i) {
    torch::jit::Node* const nothing = block->owningGraph()->createUninitialized(block->outputs()[i]->type());
    block->replaceOutput(i, nothing->insertBefore(raise)->output());
  }
  while (block->return_node()->prev() != raise) block->return_node()->prev()->destroy();
}

// Of what has an effect: a call whose result nobody reads is dropped by torch as it reads a file, once it is no call any more but was
// inlined. So is what a condition leaves out that is known by then.
std::vector<std::string> operators_of(torch::jit::Function& function) {
  std::vector<std::string> operators;
  if (auto* const body = torch::jit::tryToGraphFunction(function)) {
    auto graph = body->graph()->copy();
    torch::jit::ConstantPooling(graph);  // a loop's condition is looked at where it is the same constant as another
    torch::jit::ConstantPropagationImmutableTypes(graph);
    cut_behind_raises(graph->block());
    torch::jit::EliminateDeadCode(graph);
    collect(graph->block(), operators);
  }
  return operators;
}

Difference methods(const std::string& path, const c10::ClassType& a, const c10::ClassType& b) {
  if (a.methods().size() != b.methods().size()) return path + " has another number of methods";
  for (torch::jit::Function* method : a.methods()) {
    const std::string name = path + "." + method->name();
    torch::jit::Function* other = b.findMethod(method->name());
    if (other == nullptr) return name + " is missing";
    const auto &arguments = method->getSchema().arguments(), &others = other->getSchema().arguments();
    if (arguments.size() != others.size()) return name + " has another number of arguments";
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() != others[i].name()) return name + " has another argument than " + arguments[i].name();
    }
    const auto expected = operators_of(*method), actual = operators_of(*other);
    for (std::size_t i = 0; i < std::max(expected.size(), actual.size()); ++i) {
      if (i >= expected.size()) return name + " also calls " + actual[i];
      if (i >= actual.size()) return name + " no longer calls " + expected[i];
      if (expected[i] != actual[i]) return name + " calls " + actual[i] + " instead of " + expected[i];
    }
  }
  return {};
}

class Comparison {
 public:
  Difference values(const std::string& path, const c10::IValue& a, const c10::IValue& b) {
    if (a.tagKind() != b.tagKind()) return path + " is a " + b.tagKind() + " instead of a " + a.tagKind();
    if (a.isTensor()) return tensors(path, a.toTensor(), b.toTensor());
    if (a.isObject()) return objects(path, a.toObjectRef(), b.toObjectRef());
    if (a.isList()) return sequences(path, a.toListRef(), b.toListRef());
    if (a.isTuple()) return sequences(path, a.toTupleRef().elements(), b.toTupleRef().elements());
    if (a.isGenericDict()) return dictionaries(path, a.toGenericDict(), b.toGenericDict());
    bool same = true;
    if (a.isDouble()) same = bits(a.toDouble()) == bits(b.toDouble());
    if (a.isInt()) same = a.toInt() == b.toInt();
    if (a.isBool()) same = a.toBool() == b.toBool();
    if (a.isString()) same = a.toStringRef() == b.toStringRef();
    if (a.isDevice()) same = a.toDevice() == b.toDevice();
    if (a.isComplexDouble()) same = a.toComplexDouble() == b.toComplexDouble();
    // What is left, such as a packed weight, is a class of its own that torch can only hand to its own code.
    return same ? Difference() : path + " has another value";
  }

  Difference objects(const std::string& path, const c10::ivalue::Object& a, const c10::ivalue::Object& b) {
    if (!seen_.insert(&a).second) return {};
    const auto &type = *a.type(), &other = *b.type();
    if (type.numAttributes() != other.numAttributes()) return path + " has another number of attributes";
    for (std::size_t i = 0; i < type.numAttributes(); ++i) {
      const std::string name = path + "." + type.getAttributeName(i);
      const auto slot = other.findAttributeSlot(type.getAttributeName(i));
      if (!slot) return name + " is missing";
      if (type.is_module()) {
        if (type.is_parameter(i) != other.is_parameter(*slot)) return name + " is a parameter in one only";
        if (type.is_buffer(i) != other.is_buffer(*slot)) return name + " is a buffer in one only";
      }
      if (const auto found = values(name, a.getSlot(i), b.getSlot(*slot))) return found;
    }
    return methods(path, type, other);
  }

 private:
  static std::uint64_t bits(double value) {
    std::uint64_t result;
    std::memcpy(&result, &value, sizeof result);
    return result;
  }

  template <class Sequence>
  Difference sequences(const std::string& path, const Sequence& a, const Sequence& b) {
    if (a.size() != b.size()) return path + " has another length";
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (const auto found = values(path + "[" + std::to_string(i) + "]", a[i], b[i])) return found;
    }
    return {};
  }

  // In their order, which TorchScript's dictionaries keep.
  Difference dictionaries(const std::string& path, const c10::Dict<c10::IValue, c10::IValue>& a,
                          const c10::Dict<c10::IValue, c10::IValue>& b) {
    if (a.size() != b.size()) return path + " has another length";
    auto other = b.begin();
    for (const auto& item : a) {
      if (const auto found = values(path + "'s key", item.key(), other->key())) return found;
      if (const auto found = values(path + "[...]", item.value(), other->value())) return found;
      ++other;
    }
    return {};
  }

  std::set<const c10::ivalue::Object*> seen_;
};

}  // namespace

Difference difference(const torch::jit::Module& expected, const torch::jit::Module& actual) {
  return Comparison().objects("module", *expected._ivalue(), *actual._ivalue());
}

}  // namespace tailor::tool
