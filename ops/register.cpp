#include "register.h"

#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "calls.h"
#include "fast.h"
#include "reference.h"
#include "second_copy.h"

namespace tailor {
namespace {

using Names = std::vector<std::string>;

void append(Names& names, std::initializer_list<const char*> more) {
  names.insert(names.end(), more.begin(), more.end());
}

// Which of the op's arguments each step takes, and the names that the schema must therefore have.
struct Layout {
  std::vector<std::size_t> first;  // by step: the position of its first argument
  Names names;
};

Layout lay_out(const Chain& chain, bool inference) {
  Layout layout;
  for (const Step& step : chain.steps) {
    layout.first.push_back(layout.names.size());
    switch (step.kind) {
      case Step::Kind::linear:
        append(layout.names, {"input", "weight", "bias"});
        break;
      case Step::Kind::vector:
      case Step::Kind::scalar:
        layout.names.emplace_back(step.name);
        break;
      case Step::Kind::batch_norm:
        append(layout.names, {"norm_weight", "norm_bias", "running_mean", "running_var"});
        if (!inference) append(layout.names, {"training", "momentum"});
        append(layout.names, {"eps", "cudnn_enabled"});
        break;
      case Step::Kind::group_norm:
        append(layout.names, {"num_groups", "norm_weight", "norm_bias", "eps", "cudnn_enabled"});
        break;
      default:
        break;
    }
  }
  return layout;
}

void require_names(const c10::FunctionSchema& schema, const Names& names) {
  bool same = schema.arguments().size() == names.size();
  for (std::size_t i = 0; same && i < names.size(); ++i) same = schema.arguments()[i].name() == names[i];
  std::string wanted;
  for (const auto& name : names) wanted += (wanted.empty() ? "" : ", ") + name;
  TORCH_CHECK(same, "the schema '", schema, "' does not have the arguments of its formula: ", wanted);
}

// Where torch would do something of its own for an op that it does not know.
constexpr c10::DispatchKey keys_with_fallbacks[] = {
    // With autograd off a subclass or a mode would be handed our op, of which it knows nothing; hand it the chain's.
    c10::DispatchKey::Python,
    // A transform (vmap, grad, functionalize) would do with the op as with one that it does not know. It shall see the chain's calls.
    c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
    // With autograd off a statistic that is still to be negated would be written to in a copy.
    c10::DispatchKey::Negative,
    c10::DispatchKey::Conjugate,
};

// What the overloads of an op share.
struct Paths {
  explicit Paths(const Chain& chain) : fast(chain), reference(chain.name, "reference") {}
  FastPath fast;
  CallCounter reference;
};

// The op's kernel. Boxed, so that it needs no signature of its own and the TorchScript interpreter, which holds its
// arguments on a stack, calls it without unpacking.
class ChainKernel final : public c10::OperatorKernel {
 public:
  ChainKernel(const Chain& chain, Layout layout, Norm norm, std::shared_ptr<Paths> paths)
      : chain_(chain), layout_(std::move(layout)), norm_(norm), paths_(std::move(paths)) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const std::size_t count = layout_.names.size();
    const c10::IValue* arguments = stack->data() + (stack->size() - count);
    std::array<StepArguments, Chain::max_steps> by_step;
    for (std::size_t i = 0; i < layout_.first.size(); ++i) by_step[i].first = arguments + layout_.first[i];
    at::Tensor result = compute(by_step.data());
    torch::jit::drop(*stack, count);
    stack->emplace_back(std::move(result));
  }

 private:
  at::Tensor compute(const StepArguments* arguments) {
    if (auto result = paths_->fast.run(arguments, norm_)) return *std::move(result);
    paths_->reference.count();
    return reference(chain_, arguments, norm_, chain_.last());
  }

  const Chain& chain_;
  Layout layout_;
  Norm norm_;
  std::shared_ptr<Paths> paths_;
};

}  // namespace

void define(torch::Library& library, const Chain& chain, std::initializer_list<const char*> schemas) {
  if (is_second_copy()) return;
  const auto paths = std::make_shared<Paths>(chain);
  for (const char* text : schemas) {
    const c10::FunctionSchema schema = torch::jit::parseSchema(text);
    const bool inference = schema.overload_name().rfind("inference", 0) == 0;
    Layout layout = lay_out(chain, inference);
    require_names(schema, layout.names);
    // In a program that is linked with the library a second copy finds this function of the first one.
    TORCH_CHECK(find_chain(chain.name) == nullptr,
                "Tailor is loaded already; a second copy of it cannot be: load one of "
                "them only");
    const std::string name = c10::toString(schema.operator_name());
    library.def(text);
    const auto kernel = [&] {
      return torch::CppFunction::makeFromBoxedFunctor(
          std::make_unique<ChainKernel>(chain, layout, inference ? Norm::inference : Norm::as_called, paths));
    };
    library.impl(name.c_str(), kernel());
    for (const c10::DispatchKey key : keys_with_fallbacks) library.impl(name.c_str(), torch::dispatch(key, kernel()));
  }
  add_chain(chain);
}

}  // namespace tailor
