// The ways in from Python: the emit hook when a module is scripted or traced, the ops fuse_, unfuse_ and inspect when
// asked, and the executor's pre-pass for modules that came in unfused. None of the first and last may ever throw into a
// user's compile or run: a site that cannot be fused is left alone.
#include <torch/csrc/jit/passes/pass_manager.h>
#include <torch/csrc/jit/testing/hooks_for_testing.h>
#include <torch/library.h>

#include <atomic>
#include <functional>
#include <iostream>
#include <sstream>

#include "../ops/environment.h"
#include "../ops/second_copy.h"
#include "../ops/settled.h"
#include "ahead.h"
#include "entries.h"
#include "graph.h"
#include "modules.h"
#include "objects.h"
#include "one_thread.h"

namespace tailor {
namespace {

std::atomic<bool> automatic{from_environment("TAILOR_AUTO", true)};

const bool logging = from_environment("TAILOR_LOG", false);

void log(const std::vector<Site>& sites) {
  if (!logging) return;
  std::ostringstream text;  // one write, so that threads do not mix their lines
  for (const Site& site : sites) {
    text << "tailor: " << (site.source.empty() ? site.method : site.source) << ": ";
    if (site.fused)
      text << "fused as " << site.rule;
    else
      text << "not fused" << (site.rule.empty() ? "" : " as " + site.rule) << ": " << site.reason;
    text << '\n';
  }
  std::cerr << text.str() << std::flush;
}

// Never destroyed: torch may call a hook after the statics of this library are gone.
using Hooks = std::pair<torch::jit::ModuleHook, torch::jit::FunctionHook>;
Hooks& earlier_hooks() {
  static Hooks* hooks = new Hooks;
  return *hooks;
}

// A class of torch.nn's that returns what its linear gives: whoever calls it has that linear in his own graph, and there
// it is a site of which there is something to say.
bool is_somebodys_part(const torch::jit::Function& function, const Site& site) {
  return !site.fused && site.reason == result_of_the_method &&
         function.qualname().qualifiedName().rfind("__torch__.torch.nn.", 0) == 0;
}

// What throws leaves alone what it was about to change.
void quietly(const std::string& name, const std::function<void()>& what) noexcept {
  try {
    what();
  } catch (const std::exception& error) {
    TORCH_WARN_ONCE("Tailor left ", name, " alone: ", error.what());
  } catch (...) {  // nothing to say of it
  }
}

bool fuse_quietly(torch::jit::Function& function, bool again) noexcept {
  bool changed = false;
  quietly("'" + function.name() + "'", [&] {
    PassOptions options;
    options.method = function.name();
    options.reasons = logging;
    options.fuses = automatic;
    auto result = fuse_function(function, options);
    changed = result.changed;
    if (!logging || (again && !changed)) return;
    std::erase_if(result.sites, [&](const Site& site) { return is_somebodys_part(function, site); });
    log(result.sites);
  });
  return changed;
}

// Plain functions, not closures: scripting a BatchNorm carries the hooks through Python and back, and a closure would
// come back as a Python object that waits for the interpreter's lock at exit.
void on_module(torch::jit::Module module) {
  fuse_each(functions_of(*module.type()), fuse_quietly);
  if (earlier_hooks().first) earlier_hooks().first(module);
}

void on_function(torch::jit::StrongFunctionPtr function) {
  fuse_quietly(*function.function_, false);
  if (earlier_hooks().second) earlier_hooks().second(function);
}

// Where nothing is to be fused, too, what was fused may have been inlined beside a loop of a caller's, or of a method behind an interface.
bool is_of_interest(torch::jit::Block* block) {
  return (automatic && has_linear(block)) || (has_tailor_op(block) && has_bare_loop(block));
}

void before_execution(std::shared_ptr<torch::jit::Graph>& graph) noexcept {
  if (!is_of_interest(graph->block())) return;
  const OneThread one;
  quietly("a graph of the executor", [&] {
    PassOptions options;
    options.method = "(executor)";
    options.is_executors = true;
    options.reasons = logging;
    options.fuses = automatic;
    const auto copy = copy_of(*graph);
    const PassResult result = run_pass(copy, options);
    if (result.changed) graph = copy;
    log(result.sites);
  });
}

// What every module is, and no object else: an interface of modules that asks for no method.
c10::TypePtr any_module() {
  static const c10::TypePtr type = c10::InterfaceType::create("__torch__.tailor.AnyModule", /*is_module=*/true);
  return type;
}

// What torch makes of an object of Python's; the object where that is nothing. Of a module it infers no type, and where it is asked for
// whatever there is it never lets that go again (torch 2.11). As an interface, on the other hand, it would also take a module of Python's
// for one of a class that it knows. An error of Python's, be it an interrupt, is none of those that are caught.
c10::IValue seen_by_torch(const c10::IValue& value) {
  const auto object = value.toPyObjectHolder();
  const c10::InferredType type = object->tryToInferType();
  const bool is_module = !type.success() && type.reason() == "Cannot infer type of ScriptModule";
  if (!type.success() && !is_module) return value;
  try {
    return object->toIValue(is_module ? any_module() : type.type());
  } catch (const c10::Error&) {
    return value;
  } catch (const std::runtime_error&) {
    return value;
  }
}

torch::jit::Module module_of(c10::IValue value, const std::string& op, const char* wanted = "module") {
  if (value.isPyObject()) value = seen_by_torch(value);
  if (value.isModule()) return value.toModule();
  TORCH_CHECK_TYPE(false, op, " takes a scripted or traced ", wanted, ", got ", value.tagKind(),
                   ". Call torch.jit.script first; of a method, pass its module.");
}

// An op that takes a module or a function and answers with a report. torch makes no `Any` of a function. So there is a
// second overload, for any object of Python's: torch tells its type, and that of a function leads to the function.
template <auto make_report>
void answer(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::IValue value = torch::jit::pop(*stack);
  if (value.isPyObject()) {
    const auto type = value.toPyObjectHolder()->tryToInferType();
    if (const auto function = type.success() ? type.type()->template cast<c10::FunctionType>() : nullptr) {
      stack->emplace_back(make_report(*function->function()).json());
      return;
    }
  }
  auto module = module_of(value, op.schema().name(), "module or function");
  stack->emplace_back(make_report(module).json());
}

// Every float32 matrix that the module holds, be it a parameter or, in a frozen graph, a constant.
template <class Visit>
void for_each_weight(const torch::jit::Module& module, Visit visit) {
  const auto take = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.dim() == 2 && tensor.scalar_type() == at::kFloat) visit(tensor);
  };
  for (const auto& [path, object] : objects_in(module)) {
    for_each_held(*object, [&](const Held& held) {
      if (held.value.isTensor()) take(held.value.toTensor());
    });
    for (torch::jit::Function* function : functions_of(*object->type())) {
      auto* graph_function = torch::jit::tryToGraphFunction(*function);
      if (!graph_function) continue;
      for_each_block(graph_function->graph()->block(), [&](torch::jit::Block* block) {
        for (const torch::jit::Node* node : block->nodes())
          if (node->kind() == c10::prim::Constant && node->hasAttribute(c10::attr::value) &&
              node->kindOf(c10::attr::value) == torch::jit::AttributeKind::t)
            take(node->t(c10::attr::value));
      });
    }
  }
}

// An op that does something with each weight of a module, and answers with how many there are and what is kept of them.
template <void (*with)(const at::Tensor&)>
void answer_weights(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::IValue value = torch::jit::pop(*stack);
  const OneThread one;
  std::int64_t weights = 0;
  for_each_weight(module_of(value, op.schema().name()), [&](const at::Tensor& weight) {
    with(weight);
    ++weights;
  });
  stack->emplace_back(std::string(R"({"tailor": ")") + version() + R"(", "weights": )" + std::to_string(weights) +
                      R"(, "kept_bytes": )" + std::to_string(kept_bytes()) + "}");
}

template <c10::BoxedKernel::BoxedKernelFunction* answer>
void define(torch::Library& library, const std::string& name) {
  // Python tries the overloads in this order. A schema as text has no word for PyObject.
  library.def(c10::FunctionSchema("tailor::" + name, "object", {c10::Argument("module", c10::PyObjectType::get())},
                                  {c10::Argument("", c10::StringType::get())}));
  library.def((name + "(Any module) -> str").c_str());
  for (const char* overload : {".object", ""})
    library.impl((name + overload).c_str(), torch::CppFunction::makeFromBoxedFunction<answer>());
}

const bool installed = [] {
  if (is_second_copy()) return false;
  earlier_hooks() = torch::jit::getEmitHooks();
  torch::jit::setEmitHooks(&on_module, &on_function);
  torch::jit::registerPrePass(&before_execution);
  return true;
}();

TORCH_LIBRARY_FRAGMENT(tailor, library) {
  if (is_second_copy()) return;
  define<answer<[](auto& what) { return fuse(what); }>>(library, "fuse_");
  define<answer<[](auto& what) { return unfuse(what); }>>(library, "unfuse_");
  define<answer<[](auto& what) { return inspect(what); }>>(library, "inspect");
  define<answer_weights<settle>>(library, "settle_");
  define<answer_weights<release>>(library, "release_");
  library.def("auto(bool on) -> bool", [](bool on) { return automatic.exchange(on); });
}

}  // namespace
}  // namespace tailor
