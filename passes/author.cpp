#include "author.h"

#include <torch/csrc/jit/ir/constants.h>

#include "lines.h"

namespace tailor {
namespace {

using c10::Symbol;
using Kind = Step::Kind;
using torch::jit::WithInsertPoint;

class Author {
 public:
  Author(Graph& graph, const Text& text, Node* place, UnknownLine unknown)
      : graph_(graph), text_(text), place_(place), spelling_(text.spelling), unknown_(unknown) {}

  std::vector<Part> write() {
    const WithInsertPoint here(place_);
    std::vector<Value*> results;
    const auto result = [&](int i) { return results[static_cast<std::size_t>(i)]; };
    for (int i = 0; i <= text_.last; ++i) {
      const Step& step = text_.chain.steps[static_cast<std::size_t>(i)];
      if (step.is_norm() && !text_.norms) {
        results.push_back(result(step.left));
        parts_.push_back({results.back()->node(), i});
        continue;
      }
      switch (step.kind) {
        case Kind::linear:
          results.push_back(linear(take(3)));
          break;
        case Kind::vector:
        case Kind::scalar:
          results.push_back(take(1)[0]);
          break;
        case Kind::add:
        case Kind::mul: {
          auto inputs = in_order(i, result(step.left), result(step.right));
          if (step.kind == Kind::add) inputs.push_back(constant(1));
          results.push_back(put(kind_of(step.kind == Kind::add ? c10::aten::add : c10::aten::mul, i), inputs, i));
          break;
        }
        case Kind::div:
          results.push_back(put(kind_of(c10::aten::div, i), {result(step.left), result(step.right)}, i));
          break;
        case Kind::sigmoid:
          results.push_back(put(c10::aten::sigmoid, {result(step.left)}, i));
          break;
        case Kind::swish: {
          if (spelling_.is_silu(static_cast<std::size_t>(i))) {
            results.push_back(put(kind_of(c10::aten::silu, i), {result(step.left)}, i));
            break;
          }
          Value* gate = put(c10::aten::sigmoid, {result(step.left)}, step.left);
          results.push_back(put(kind_of(c10::aten::mul, i), in_order(i, result(step.left), gate), i));
          break;
        }
        case Kind::batch_norm:
          results.push_back(put(c10::aten::batch_norm, batch_norm(result(step.left)), i));
          break;
        case Kind::group_norm: {
          auto inputs = take(5);  // num_groups, weight, bias, eps, cudnn_enabled
          inputs.insert(inputs.begin(), result(step.left));
          results.push_back(put(c10::aten::group_norm, inputs, i));
          break;
        }
      }
    }
    return std::move(parts_);
  }

 private:
  std::vector<Value*> in_order(int step, Value* left, Value* right) const {
    if (spelling_.is_reversed(static_cast<std::size_t>(step))) std::swap(left, right);
    return {left, right};
  }

  Symbol kind_of(Symbol plain, int step) const {
    const bool in_place = text_.word_for_word && spelling_.is_in_place(static_cast<std::size_t>(step));
    return in_place ? written(plain) : plain;
  }
  static Symbol written(Symbol plain) { return Symbol::aten(plain.toUnqualString() + std::string("_")); }

  // Of an input, a weight and a bias.
  Value* linear(const std::vector<Value*>& inputs) {
    const std::string_view how = text_.word_for_word ? spelling_.linear() : "linear";
    Value* bias = is_none(inputs[2]) ? nullptr : inputs[2];
    if (how == "addmm" && bias)  // a file may say it without
      return put(c10::aten::addmm, {bias, inputs[0], transposed(inputs[1]), constant(1), constant(1)}, 0);
    Value* product = product_of(how, inputs, bias ? -1 : 0);
    if (!product) return put(c10::aten::linear, inputs, 0);
    if (!bias) return product;
    auto addends = in_order(0, product, bias);
    addends.push_back(constant(1));
    return put(how.ends_with('_') ? written(c10::aten::add) : c10::aten::add, addends, 0);
  }

  // Where the bias is not part of it, else null.
  Value* product_of(std::string_view how, const std::vector<Value*>& inputs, int done) {
    if (how.ends_with('_')) how.remove_suffix(1);
    if (how == "sum") return put(c10::aten::linear, {inputs[0], inputs[1], constant(c10::IValue())}, done);
    if (how != "mm" && how != "matmul") return nullptr;
    return put(how == "mm" ? c10::aten::mm : c10::aten::matmul, {inputs[0], transposed(inputs[1])}, done);
  }

  Value* transposed(Value* weight) {
    std::string name(spelling_.transpose());
    std::vector<Value*> inputs{weight};
    for (const Transpose& each : transposes)
      if (name == each.name) {
        name = "transpose";
        inputs.insert(inputs.end(), {constant(each.first), constant(each.second)});
      }
    if (name == "permute") inputs.push_back(constant(c10::List<std::int64_t>{1, 0}));
    const bool is_known = inputs.size() > 1 || name == "mT" || name == turn;
    return put(is_known ? Symbol::aten(name) : c10::aten::t, inputs, -1);
  }

  // At the top, so that whatever uses it can be moved.
  Value* constant(const c10::IValue& value) {
    const WithInsertPoint top(graph_.block()->nodes().front());
    return graph_.insertConstant(value);
  }

  std::vector<Value*> take(std::size_t count) {
    const auto begin = text_.arguments.begin() + static_cast<std::ptrdiff_t>(next_);
    next_ += count;
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }

  std::vector<Value*> batch_norm(Value* value) {
    std::vector<Value*> inputs = take(4);
    inputs.insert(inputs.begin(), value);
    const std::vector<Value*> mode =
        text_.inference ? std::vector<Value*>{constant(false), constant(0.0)} : take(2);  // training, momentum
    const std::vector<Value*> rest = take(2);                                             // eps, cudnn_enabled
    inputs.insert(inputs.end(), mode.begin(), mode.end());
    inputs.insert(inputs.end(), rest.begin(), rest.end());
    return inputs;
  }

  Value* put(Symbol kind, const std::vector<Value*>& inputs, int done) {
    Node* node = graph_.insertNode(graph_.create(kind, inputs));
    node->copyMetadata(place_);
    if (done > 0 && unknown_ == UnknownLine::none) keep_line_of_chain(node);
    parts_.push_back({node, done});
    return node->output();
  }

  Graph& graph_;
  const Text& text_;
  Node* place_;
  Spelling spelling_;
  UnknownLine unknown_;
  std::size_t next_ = 0;
  std::vector<Part> parts_;
};

}  // namespace

std::vector<Part> write_out(Graph& graph, const Text& text, Node* place, UnknownLine unknown) {
  return Author(graph, text, place, unknown).write();
}

}  // namespace tailor
