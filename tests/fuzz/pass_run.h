// Runs calls of a model on one side, unfused or fused.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <map>
#include <optional>

#include "pass_build.h"
#include "pass_spoil.h"

namespace tailor::fuzz {

using Graphs = std::map<std::string, std::shared_ptr<torch::jit::Graph>>;  // by method

// The graphs of the methods that calls name, their calls inlined.
Graphs graphs_of(const torch::jit::Module& module, const Model& model);

// As their author wrote them, but that torch's interpreter loses no argument of theirs (passes/ahead.h).
Graphs plain_graphs_of(const torch::jit::Module& module, const Model& model);

// So that those which the pass left alone are as on the plain side.
void add_ahead_where_left_alone(const Graphs& graphs);

// What a call came to.
struct Outcome {
  std::vector<at::Tensor> values;
  std::string error;      // one line
  bool backward = false;  // whether backward was reached; an error is then its
  at::Tensor input;       // afterwards
  bool held = false;      // an op took a copy of an operand, for the sake of a write, and the operand was written to
};

// A module and what runs its methods: graphs as they are written, by the interpreter, or torch's executor.
class Side {
 public:
  Side(torch::jit::Module module, const Graphs* graphs, Type type);

  Outcome call(const Model& model, const Call& call);

  // By a fault of pass_plant.h, if it is one.
  void spoil(const std::string& what) {
    if (!what.empty()) spoiler_.emplace(what);
  }

  // How many calls of a method have come to their end.
  int finished(const std::string& method) const;

  // Changes its parameters and buffers, of the model's type, in their last digits.
  void shake();

  struct State {
    std::string name;
    at::Tensor value;
  };
  std::vector<State> state() const;

 private:
  struct Slot {
    c10::ivalue::Object* object;
    std::size_t index;
    std::string name;
  };
  void collect(const torch::jit::Module& module, const std::string& path);
  Outcome run(const Model& model, const Call& call);
  std::vector<at::Tensor> tensors() const;
  at::Tensor input_of(const Model& model, const Call& call) const;

  torch::jit::Module module_;
  Type type_;
  bool by_executor_;
  std::map<std::string, torch::jit::Code> codes_;
  std::vector<Slot> tensors_, modes_;
  std::map<std::string, int> finished_;
  std::optional<Spoiler> spoiler_;
};

}  // namespace tailor::fuzz
