#include "ir.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/passes/canonicalize.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/normalize_ops.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <functional>
#include <map>
#include <regex>
#include <sstream>

#include "passes/forks.h"
#include "passes/graph.h"
#include "passes/order.h"
#include "passes/rewrite.h"
#include "source.h"

namespace tailor::test {
namespace {

// The parts of a net. Reports skip frames in torch/nn, as they do for torch's own modules.
const char* parts = R"py(
def linear(self, x):
    return torch.linear(x, self.w, self.b)
def linear2(self, x):
    return torch.linear(x, self.w2, self.b2)
def batch_norm(self, y):
    return torch.batch_norm(y, self.gamma, self.beta, self.mean, self.var, self.training, 0.1, 0.001, True)
def bn_checks(self, y):
    if y.dim() != 2 and y.dim() != 3:
        raise Exception("expected 2D or 3D input (got {}D input)".format(y.dim()))
    if self.training:
        self.tracked.add_(1)
def bn(self, y):
    self.bn_checks(y)
    return self.batch_norm(y)
def mul_part(self, x):
    return self.batch_norm(torch.linear(x, self.w) * self.scale)
def frozen_bn(self, y):
    return torch.batch_norm(y, self.gamma, self.beta, self.mean, self.var, False, 0.1, 0.001, True)
def group_norm(self, y):
    return torch.group_norm(y, 3, self.gamma, self.beta, 0.001, True)
def gn_checks(self, y):
    if y.dim() < 2:
        raise Exception("Expected at least 2D input")
    size = y.size(0) * y.size(1) // 3
    for i in range(len(y.size()) - 2):
        size *= y.size(i + 2)
    if size == 1:
        raise Exception("Expected more than 1 value per channel when training, got input size {}".format(y.size()))
def gn(self, y):
    self.gn_checks(y)
    return self.group_norm(y)
def silu(self, v):
    return torch.silu(v)
def swish(self, v):
    return v * torch.sigmoid(v)

def mul_bn(self, x):
    return tailor.linear_mul_batch_norm(x, self.w, self.b, self.scale, self.gamma, self.beta, self.mean, self.var, self.training, 0.1, 0.001, True)
def sigmoid_mul_add(self, x):
    return tailor.linear_sigmoid_mul_add(x, self.w, self.b, self.factor)
def add_swish_gn(self, x):
    return tailor.linear_add_swish_group_norm(x, self.w, self.b, self.scale, 3, self.gamma, self.beta, 0.001, True)
def swish_add_gn(self, x):
    return tailor.linear_swish_add_group_norm(x, self.w, self.b, self.scale, 3, self.gamma, self.beta, 0.001, True)
def bn_add_div_swish(self, x):
    return tailor.linear_batch_norm_add_div_swish(x, self.w, self.b, self.gamma, self.beta, self.mean, self.var, self.training, 0.1, 0.001, True, self.one, self.factor)
def gn_swish_mul_swish(self, x):
    return tailor.linear_group_norm_swish_mul_swish(x, self.w, self.b, 3, self.gamma, self.beta, 0.001, True, self.scale)
)py";

std::string method(const std::string& body) {
  if (body.starts_with("def ")) return body + "\n";
  std::string text = "def forward(self, x):\n    ";
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (body.compare(i, 2, "; ") == 0) {
      text += "\n    ";
      ++i;
    } else {
      text += body[i];
      if (body[i] == '\n') text += "    ";
    }
  }
  return text + "\n";
}

// Those of `parts` that a text names, and those that they name. The others would be methods, and so sites, of every net.
std::string parts_for(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream lines(parts);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("def ")) all.emplace_back();
    if (!all.empty()) all.back() += line + "\n";
  }
  std::string wanted;
  for (auto part = all.rbegin(); part != all.rend(); ++part) {  // they name only what stands above them
    const std::string name = part->substr(4, part->find('(') - 4);
    for (const char* after : {"(", ","})
      if ((wanted + text).find("self." + name + after) != std::string::npos) {
        wanted = *part + wanted;
        break;
      }
  }
  return wanted;
}

void take_apart(const c10::IValue& value, std::vector<at::Tensor>& into) {
  if (value.isTensor()) into.push_back(value.toTensor());
  if (value.isTuple())
    for (const auto& element : value.toTupleRef().elements()) take_apart(element, into);
  if (value.isInt()) into.push_back(at::scalar_tensor(value.toInt(), at::kLong));
}

std::string difference(const at::Tensor& wanted, const at::Tensor& got) {
  std::ostringstream text;
  if (wanted.scalar_type() != got.scalar_type())
    text << "dtype " << got.scalar_type() << " instead of " << wanted.scalar_type();
  else if (wanted.sizes() != got.sizes())
    text << "shape " << got.sizes() << " instead of " << wanted.sizes();
  else if (wanted.strides() != got.strides())
    text << "strides " << got.strides() << " instead of " << wanted.strides();
  else if (const double small = wanted.scalar_type() == at::kDouble ? 1e-10 : 1e-4;
           !at::allclose(wanted, got, small, small, /*equal_nan=*/true))
    text << "values differ by up to " << (wanted - got).abs().max().item<double>();
  return text.str();
}

// Makes equal in `graph` what text() says cannot matter.
void make_plain(const std::shared_ptr<Graph>& graph) {
  const auto forget_names = [](c10::ArrayRef<torch::jit::Value*> values) {
    for (torch::jit::Value* value : values) value->setDebugName("");
  };
  const bool assigns = has(*graph, "prim::SetAttr");
  std::map<std::string, torch::jit::Node*> unique;  // sorted: an object comes before its attributes
  for_each_block(graph->block(), [&](torch::jit::Block* block) {
    forget_names(block->inputs());
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      torch::jit::Node* node = *it++;
      forget_names(node->outputs());
      if (const auto forked = forked_graph(node)) {
        const auto copy = forked->copy();
        make_plain(copy);
        node->g_(c10::attr::Subgraph, copy);
      }
      std::ostringstream key;
      if (node->kind() == c10::prim::Constant)
        key << "constant " << node->output()->type()->str() << ' ' << torch::jit::toIValue(node->output()).value();
      else if (const std::string path = node->outputs().size() == 1 ? attribute_path(node->output()) : "";
               !path.empty() && !assigns)
        key << "attribute " << path;
      else
        continue;
      const auto [first, is_new] = unique.emplace(key.str(), node);
      if (is_new) continue;
      node->output()->replaceAllUsesWith(first->second->output());
      node->destroy();
    }
  });
  for (auto entry = unique.rbegin(); entry != unique.rend(); ++entry) {
    if (!entry->second->hasUses())
      entry->second->destroy();
    else if (entry->second != *graph->nodes().begin())
      entry->second->moveBefore(*graph->nodes().begin());
  }
}

}  // namespace

Module net(const std::string& body) {
  Module module("Net");
  at::manual_seed(1);
  const auto put = [&](const char* name, const at::Tensor& value) { module.register_parameter(name, value, false); };
  for (const char* name : {"w", "w2"}) put(name, at::randn({12, 5}, at::kDouble) * 0.4);
  for (const char* name : {"b", "b2", "scale", "addend", "gamma", "beta"}) put(name, at::randn({12}, at::kDouble));
  put("square", at::randn({12, 12}, at::kDouble) * 0.4);
  put("one", at::randn({1}, at::kDouble));
  module.register_buffer("mean", at::randn({12}, at::kDouble));
  module.register_buffer("var", at::rand({12}, at::kDouble) + 0.5);
  module.register_buffer("other", at::randn({12}, at::kDouble));
  module.register_buffer("tracked", at::zeros({}, at::kLong));
  const c10::List<at::Tensor> all({module.attr("other").toTensor(), module.attr("b").toTensor()});
  module.register_attribute("all", c10::ListType::ofTensors(), all);
  module.register_attribute("factor", c10::FloatType::get(), 2.5);
  module.register_attribute("count", c10::IntType::get(), 3);
  module.register_attribute("training", c10::BoolType::get(), true);
  define(module, parts_for(body), "torch/nn/parts.py");
  define(module, method(body), "net.py");
  static auto* never_destroyed = new std::vector<Module>;  // a graph's call stacks point to its module's functions
  never_destroyed->push_back(module);
  return module;
}

std::shared_ptr<Graph> graph_of(const Module& module, const std::string& method) {
  auto graph = module.get_method(method).graph()->copy();
  inline_calls(*graph);
  return graph;
}

std::shared_ptr<Graph> parse(const std::string& ir) {
  auto graph = std::make_shared<Graph>();
  torch::jit::parseIR(ir, graph.get(), /*parse_tensor_constants=*/true);
  return graph;
}

std::vector<Site> fuse_graph(const std::shared_ptr<Graph>& graph, const std::vector<std::string>& rules) {
  PassOptions options;
  options.rules = rules;
  options.method = "forward";
  auto sites = run_pass(graph, options).sites;
  graph->lint();
  drop_order(graph->block());
  return sites;
}

std::string take_checks(const std::shared_ptr<Graph>& graph) {
  std::string said;
  for (auto it = graph->nodes().begin(); it != graph->nodes().end();) {
    torch::jit::Node* node = *it++;
    if (!is_tailor(node, "check")) continue;
    said += (said.empty() ? "" : "; ") + std::to_string(torch::jit::toIValue(node->namedInput("last"))->toInt()) + " " +
            torch::jit::toIValue(node->namedInput("spelling"))->toStringRef();
    node->output(0)->replaceAllUsesWith(node->input(0));
    destroy_if_unused(node);
  }
  return said;
}

std::string text(const std::shared_ptr<Graph>& graph) {
  const auto plain = graph->copy();
  make_plain(plain);
  const std::string all = torch::jit::Canonicalize(plain, /*keep_unique_names=*/false)->toString();
  return std::regex_replace(all, std::regex(" # [^\n]*"), "");  // source lines, which toString(false) leaves in blocks
}

torch::jit::Node* find(const std::shared_ptr<Graph>& graph, const std::string& kind) {
  for (torch::jit::Node* node : graph->nodes())
    if (node->kind().toQualString() == kind) return node;
  throw std::logic_error("no " + kind);
}

bool has(const Graph& graph, const std::string& kind) {
  bool found = false;
  for_each_block(const_cast<torch::jit::Block*>(graph.block()), [&](torch::jit::Block* block) {
    for (const torch::jit::Node* node : block->nodes()) {
      found = found || node->kind().toQualString() == kind;
      if (const auto forked = forked_graph(node)) found = found || has(*forked, kind);
    }
  });
  return found;
}

Outcome run_on(Module module, const std::shared_ptr<Graph>& graph, const std::vector<at::Tensor>& inputs) {
  Outcome outcome;
  torch::jit::Stack stack;
  if (graph->inputs().size() > inputs.size()) stack.emplace_back(module._ivalue());
  for (const auto& input : inputs) stack.emplace_back(input);
  try {
    torch::jit::Code code(graph->copy(), "forward");
    torch::jit::InterpreterState(code).run(stack);
    for (const auto& value : stack) take_apart(value, outcome.values);
  } catch (const c10::Error& error) {
    outcome.error = last_line(error.what_without_backtrace());
  } catch (const std::exception& error) {
    outcome.error = last_line(error.what());
  }
  for (const auto& entry : module.named_parameters()) outcome.state.emplace_back(entry.name, entry.value);
  for (const auto& entry : module.named_buffers()) outcome.state.emplace_back(entry.name, entry.value);
  outcome.inputs = inputs;
  return outcome;
}

Outcome run(const std::shared_ptr<Graph>& graph, const Module& module, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> mine;
  for (const auto& input : inputs) mine.push_back(input.clone());
  return run_on(module.deepcopy(), graph, mine);
}

std::string difference(const Outcome& wanted, const Outcome& got) {
  if (wanted.error != got.error) return "raised '" + got.error + "' instead of '" + wanted.error + "'";
  if (wanted.values.size() != got.values.size()) return "another number of results";
  for (std::size_t i = 0; i < wanted.values.size(); ++i)
    if (auto text = difference(wanted.values[i], got.values[i]); !text.empty()) return "result: " + text;
  for (std::size_t i = 0; i < wanted.state.size(); ++i)
    if (auto text = difference(wanted.state[i].second, got.state[i].second); !text.empty())
      return wanted.state[i].first + ": " + text;
  for (std::size_t i = 0; i < wanted.inputs.size(); ++i)
    if (auto text = difference(wanted.inputs[i], got.inputs[i]); !text.empty()) return "input: " + text;
  return "";
}

std::string difference(const std::shared_ptr<Graph>& wanted, const std::shared_ptr<Graph>& got, const Module& module) {
  at::manual_seed(2);
  const auto random = [](at::IntArrayRef shape, at::ScalarType type = at::kDouble) {
    return at::randn(shape, at::kDouble).to(type);
  };
  std::vector<std::pair<std::string, at::Tensor>> inputs = {{"plain", random({7, 5})},
                                                            {"one row", random({1, 5})},
                                                            {"no row", random({0, 5})},
                                                            {"too wide", random({7, 6})},
                                                            {"1-D", random({5})},
                                                            {"3-D", random({4, 12, 5})},
                                                            {"4-D", random({2, 12, 3, 5})},
                                                            {"float32", random({7, 5}, at::kFloat)},
                                                            {"integers", random({7, 5}, at::kLong)},
                                                            {"strided", random({5, 7}).t()}};
  std::vector<std::pair<std::string, at::Tensor>> vectors = {{"as it is", {}},
                                                             {"(1,)", random({1})},
                                                             {"()", random({})},
                                                             {"(7, 12)", random({7, 12})},
                                                             {"(7, 12), across", random({12, 7}).t()},
                                                             {"(7, 1)", random({7, 1})},
                                                             {"(2, 7, 12)", random({2, 7, 12})},
                                                             {"too long", random({13})},
                                                             {"float32", random({12}, at::kFloat)},
                                                             {"integers", random({12}, at::kLong)},
                                                             {"0-dim float32", random({}, at::kFloat)}};
  for (const bool training : {true, false})
    for (const auto& [vector_name, vector] : vectors)
      for (const auto& [input_name, input] : inputs) {
        if (vector.defined() && input_name != "plain" && input_name != "too wide" && input_name != "3-D") continue;
        Module changed = module.deepcopy();
        changed.setattr("training", training);
        if (vector.defined())
          for (const char* name : {"scale", "one"}) changed.setattr(name, vector);
        const std::vector<at::Tensor> arguments{input};
        const auto text = difference(run(wanted, changed, arguments), run(got, changed, arguments));
        if (!text.empty())
          return (training ? "training, x " : "eval, x ") + input_name + ", vectors " + vector_name + ": " + text;
      }
  return "";
}

bool automatic(bool on) {
  torch::jit::Stack stack{on};
  c10::Dispatcher::singleton().findSchemaOrThrow("tailor::auto", "").callBoxed(stack);
  return stack.at(0).toBool();
}

std::int64_t calls_of(const std::string& op) {
  torch::jit::Stack stack;
  c10::Dispatcher::singleton().findSchemaOrThrow("tailor::calls", "").callBoxed(stack);
  std::int64_t all = 0;
  for (const auto& entry : stack.at(0).toGenericDict())
    if (entry.key().toStringRef().rfind(op + "/", 0) == 0) all += entry.value().toInt();
  return all;
}

void expect_stays(const NearMiss& row) {
  const Module module = net(row.body);
  const auto graph = graph_of(module);
  const auto sites = fuse_graph(graph);
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_FALSE(sites[0].fused);
  EXPECT_EQ(sites[0].rule, row.rule);
  EXPECT_EQ(sites[0].reason, row.reason);
  // What the pass normalises before it matches stays normalised; nothing else may have changed.
  auto wanted = graph_of(module);
  torch::jit::NormalizeOps(wanted);
  torch::jit::ConstantPropagationImmutableTypes(wanted);
  EXPECT_EQ(text(graph), text(wanted));
  EXPECT_EQ(difference(graph_of(module), graph, module), "");
}

}  // namespace tailor::test
