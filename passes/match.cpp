#include "match.h"

#include <algorithm>

namespace tailor {
namespace {

using Kind = Step::Kind;

bool is_number(const Value* value) { return value->type()->isSubtypeOf(*c10::NumberType::get()); }

class Matcher {
 public:
  Matcher(const Chain& chain, const Linear& linear) : chain_(chain) {
    match_.chain = &chain;
    match_.linear = linear;
    match_.arguments.resize(chain.steps.size());
    match_.results.resize(chain.steps.size());
  }

  std::variant<Match, Miss> run() {
    begin();
    for (int i = 1; i <= chain_.last(); ++i) {
      if (step(i).is_operand()) continue;
      if (!find(i))
        return Miss{parts_found(), right_operation_, has_doubtful_operand(), border_.empty() ? reason_ : border_};
      previous_ = i;
    }
    if (!border_.empty()) return Miss{parts_found(), true, has_doubtful_operand(), border_};
    in_order();
    if (!operands_come_from_outside() || !interior_is_private()) return Miss{parts_found(), true, false, reason_};
    spell();
    return std::move(match_);
  }

 private:
  const Step& step(int i) const { return chain_.steps[static_cast<std::size_t>(i)]; }
  Value*& result(int i) { return match_.results[static_cast<std::size_t>(i)]; }
  std::vector<Value*>& arguments(int i) { return match_.arguments[static_cast<std::size_t>(i)]; }

  bool fail(std::string reason) {
    if (reason_.empty()) reason_ = std::move(reason);
    return false;
  }

  void add_part(Node* node, int done) { match_.parts.push_back({node, done}); }

  int parts_found() const { return static_cast<int>(match_.parts.size() - match_.linear.nodes.size()); }

  void begin() {
    const Linear& linear = match_.linear;
    for (Node* node : linear.nodes) add_part(node, node == linear.nodes.back() ? 0 : -1);
    arguments(0) = {linear.input, linear.weight, linear.bias};
    result(0) = linear.y();
  }

  // Finds the node of step i among the readers of the result before it. Behind the border of a branch or a loop too, but only to learn
  // which rule the author had in mind.
  bool find(int i) {
    Value* value = result(previous_);
    const auto found = static_cast<std::ptrdiff_t>(match_.parts.size());
    for (Node* node : readers(value)) {
      if (node->owningBlock() != value->node()->owningBlock()) continue;
      reason_.clear();
      if (is_step(i, node, value)) {
        if (!is_overwritten(value, node)) return true;
        match_.parts.erase(match_.parts.begin() + found, match_.parts.end());
        return false;
      }
      right_operation_ = !reason_.empty();
      if (right_operation_) return false;
    }
    const auto all = readers(value);
    const auto elsewhere = std::find_if(all.begin(), all.end(), [&](const Node* node) {
      return node->owningBlock() != value->node()->owningBlock() && begins_step(i, node);
    });
    right_operation_ = elsewhere != all.end();
    const std::string text = wanted(i, value, right_operation_ ? *elsewhere : nullptr);
    if (!right_operation_) return fail(text);
    if (border_.empty()) border_ = text;
    reason_.clear();
    return is_step(i, *elsewhere, value) || fail(text);
  }

  // By a form that writes to an `out` of the author's.
  bool is_overwritten(Value* value, Node* reader) {
    for (Node* other : readers(value))
      if (is_given_its_result(other) && seen(other->namedInput("out")) == value && other->isBefore(reader))
        return !fail(describe(other) + " writes to what " + describe(reader) + " reads");
    return false;
  }

  // Of one number. The form that writes to an `out` of the author's is none.
  static bool is_function(const Node* node, const char* name) {
    return is_aten(node, name) && node->inputs().size() == 1;
  }

  // Whether the node's kind is the one with which step i begins.
  bool begins_step(int i, const Node* node) const {
    const Kind kind = step(i).kind;
    if (kind == Kind::swish) return is_function(node, "silu") || is_function(node, "sigmoid");
    return is_aten(node, to_string(kind)) && (kind != Kind::mul || !is_half_of_swish(node));
  }

  bool is_step(int i, Node* node, Value* value) {
    switch (step(i).kind) {
      case Kind::add:
      case Kind::mul:
      case Kind::div:
        return is_arithmetic(i, node, value);
      case Kind::sigmoid:
        return is_function(node, "sigmoid") && take(i, node);
      case Kind::swish:
        return is_swish(i, node, value);
      case Kind::batch_norm:
      case Kind::group_norm:
        return is_norm(i, node, value);
      case Kind::linear:
      case Kind::vector:
      case Kind::scalar:
        break;
    }
    return false;
  }

  void say(const char* what, int step) { words_ += " " + (what + std::to_string(step)); }

  bool take(int i, Node* node) {
    add_part(node, i);
    result(i) = node->output();
    return true;
  }

  bool is_arithmetic(int i, Node* node, Value* value) {
    const Step& s = step(i);
    if (!is_aten(node, to_string(s.kind))) return false;
    if (s.kind == Kind::mul && is_half_of_swish(node)) return false;
    if (!is_plain_arithmetic(node, s.kind))
      return fail(describe(node) + " has an alpha, a rounding mode or another form than a plain `" +
                  std::string(to_string(s.kind)) + "`");
    const int other = s.left == previous_ ? s.right : s.left;
    const bool value_is_left = seen(node->input(0)) == value;
    if (is_in_place(node) && !value_is_left) {
      // As in `y += f`, to what the chain itself has computed before, which nobody else reads.
      if (step(other).is_operand()) return fail(describe(node) + " writes to another value than the rule's");
      if (!is_real_for_sure(node)) return false;
    }
    const bool commutes = s.kind != Kind::div;
    if (!commutes && value_is_left != (s.left == previous_))
      return fail(describe(node) + " has its operands in the other order");
    if (!is_operand(other, node, node->input(value_is_left ? 1 : 0))) return false;
    if (value_is_left != (s.left == previous_)) say("reversed:", i);
    return take(i, node);
  }

  // `v * sigmoid(v)`, which belongs to another rule's swish.
  bool is_half_of_swish(const Node* node) const {
    for (std::size_t side = 0; side < 2; ++side) {
      const Node* sigmoid = seen(const_cast<Value*>(node->input(side)))->node();
      if (is_function(sigmoid, "sigmoid") &&
          seen(const_cast<Value*>(sigmoid->input(0))) == seen(const_cast<Value*>(node->input(1 - side))))
        return true;
    }
    return false;
  }

  // A number: what a tensor holds is seen at run time.
  // What `node` writes in place. No guard sees a number.
  bool is_real_for_sure(const Node* node) {
    for (const auto& step : match_.arguments)
      for (const Value* argument : step)
        if (argument && may_be_complex(argument))
          return fail(describe(node) + " writes in place what a number may have made complex");
    return true;
  }

  bool is_operand(int i, Node* node, Value* value) {
    const Step& s = step(i);
    if (s.is_operand()) {
      if (s.kind == Kind::vector && !is_tensor(value))
        return fail(std::string(s.name) + " of " + describe(node) + " is a number; the rule takes a tensor");
      if (is_in_place(node) && may_be_complex(value))
        return fail(describe(node) + " writes the product of a number that may be complex in place");
      if (!is_tensor(value) && !is_number(value))
        return fail(std::string(s.name) + " of " + describe(node) + " is neither a number nor a tensor");
      arguments(i) = {value};
      result(i) = value;
      return true;
    }
    if (seen(value) == result(i)) return true;
    return fail(describe(node) + " reads " + describe(value) + ", the rule wants the result of " +
                describe(result(i)->node()));
  }

  bool is_swish(int i, Node* node, Value* value) {
    if (is_function(node, "silu")) {
      // In place silu refuses other things of complex values.
      if (is_in_place(node) && !is_real_for_sure(node)) return false;
      say("silu:", i);
      return take(i, node);
    }
    if (!is_function(node, "sigmoid")) return false;
    for (Node* product : readers(node->output())) {
      if (product->owningBlock() != node->owningBlock() || !is_plain_arithmetic(product, Kind::mul)) continue;
      const Value* left = seen(product->input(0));
      const Value* right = seen(product->input(1));
      if ((left == value && right == node->output()) || (left == node->output() && right == value)) {
        add_part(node, previous_);
        if (left != value) say("reversed:", i);
        return take(i, product);
      }
    }
    return false;
  }

  bool is_norm(int i, Node* node, Value* value) {
    if (!is_aten(node, to_string(step(i).kind)) || seen(node->input(0)) != value) return false;
    const auto inputs = node->inputs().slice(1);
    arguments(i).assign(inputs.begin(), inputs.end());
    return take(i, node);
  }

  std::string wanted(int i, Value* value, const Node* elsewhere) {
    const auto all = readers(value);
    std::string text = "after " + describe(value->node()) + " the rule wants " + std::string(to_string(step(i).kind));
    if (all.empty()) return text + ", but nothing reads it";
    const auto interesting =
        std::find_if(all.begin(), all.end(), [](const Node* node) { return !is_shape_reader(node); });
    const Node* found = elsewhere ? elsewhere : interesting == all.end() ? all.front() : *interesting;
    if (found->owningBlock() != value->node()->owningBlock() && !is_result(found))
      return text + ", but " + describe(found) + " stands in another branch or loop";
    return text + ", found " + describe(found);
  }

  void in_order() {
    std::stable_sort(match_.parts.begin(), match_.parts.end(),
                     [](const Part& a, const Part& b) { return a.node->isBefore(b.node); });
  }

  // How the linear is written, which steps are written in place, and what else was noticed of steps.
  void spell() {
    std::string linear = match_.linear.nodes.front()->kind().toUnqualString();
    for (const Part& part : match_.parts)
      if (is_in_place(part.node) && part.done > 0) say("", part.done);
    Node* sum = match_.linear.nodes.size() > 1 ? match_.linear.nodes.back() : nullptr;  // of a product and its bias
    const bool bias_in_place = sum && is_in_place(sum);
    if (sum && seen(sum->input(0)) != match_.linear.nodes.front()->output()) say("reversed:", 0);
    if (linear == "linear" && sum) linear = "sum";
    if (linear == "linear" && words_.empty()) return;
    match_.spelling = linear + (bias_in_place ? "_" : "");
    if (match_.linear.transpose) match_.spelling += ":" + transpose_of(match_.linear.transpose);
    if (match_.linear.turned) match_.spelling += std::string(":") + turn;
    match_.spelling += words_;
  }

  bool is_part(const Node* node) const {
    return std::any_of(match_.parts.begin(), match_.parts.end(), [&](const Part& p) { return p.node == node; });
  }

  // Whether an operand so far is made of what the chain computes: then it is rather a part of another rule.
  bool has_doubtful_operand() const {
    const auto is_result = [&](const Value* value) {
      const auto& all = match_.results;
      return std::find(all.begin(), all.end(), seen(const_cast<Value*>(value))) != all.end();
    };
    for (int i = 1; i <= previous_; ++i) {
      if (!step(i).is_operand() || match_.arguments[static_cast<std::size_t>(i)].empty()) continue;
      const auto inputs = seen(match_.arguments[static_cast<std::size_t>(i)][0])->node()->inputs();
      if (std::any_of(inputs.begin(), inputs.end(), is_result)) return true;
    }
    return false;
  }

  bool operands_come_from_outside() {
    for (std::size_t i = 0; i < match_.arguments.size(); ++i)
      for (Value* argument : match_.arguments[i])
        if (argument && is_part(seen(argument)->node()))
          return fail(describe(argument) + ", an operand of the rule, is computed inside it by " +
                      describe(seen(argument)->node()));
    return true;
  }

  // No one else may read a value that will not exist; those who read its shape are given it.
  bool interior_is_private() {
    for (const Part& part : match_.parts) {
      if (part.node == match_.last()) break;
      Value* value = part.node->output();
      for (Node* reader : readers(value)) {
        if (is_part(reader)) {
          if (reads_what_was_written(part, reader)) return false;
        } else if (is_shape_reader(reader) && part.done >= 0) {
          match_.shape_readers.push_back({reader, value});
        } else {
          const bool from_inside = reader->owningBlock() != reader->owningGraph()->block();
          const std::string how = is_result(reader)
                                      ? std::string("returned") + (from_inside ? " from a branch or loop" : "")
                                      : "read by " + describe(reader);
          return fail("the result of " + describe(part.node) + " is also " + how);
        }
      }
    }
    return true;
  }

  // An in-place part overwrites the value that it reads: whoever reads that value later sees something else. Where that is
  // a gradient, eager raises in backward.
  bool reads_what_was_written(const Part& part, const Node* reader) {
    for (const Part& writer : match_.parts) {
      if (!is_in_place(writer.node) || seen(writer.node->input(0)) != part.node->output()) continue;
      match_.inference_only = match_.inference_only || needs_its_result(part.node);
      if (writer.node != reader && writer.node->isBefore(reader)) {
        fail(describe(writer.node) + " overwrites what " + describe(reader) + " reads");
        return true;
      }
    }
    return false;
  }

  const Chain& chain_;
  Match match_;
  int previous_ = 0;
  bool right_operation_ = false;
  std::string border_;  // said of the first step that stands behind one
  std::string words_;   // of the spelling, a blank before each
  std::string reason_;
};

}  // namespace

bool needs_its_result(const Node* node) { return is_aten(node, "sigmoid"); }

bool Match::order_shows() const {
  const auto takes_tensor = [&](int step) {
    if (step < 0) return false;
    const auto i = static_cast<std::size_t>(step);
    return chain->steps[i].is_operand() && is_tensor(arguments[i][0]);
  };
  bool has_operand = false;  // the value so far may then lie across, too
  for (std::size_t i = 1; i < chain->steps.size(); ++i) {
    const Step& step = chain->steps[i];
    has_operand = has_operand || takes_tensor(step.left) || takes_tensor(step.right);
    if (has_operand && step.right >= 0 && Spelling(spelling).is_reversed(i)) return true;
  }
  return false;
}

std::variant<Match, Miss> match(const Chain& chain, const Linear& linear) { return Matcher(chain, linear).run(); }

}  // namespace tailor
