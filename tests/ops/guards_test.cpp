// What a rewritten graph asks at run time.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "ops/chain.h"
#include "sample.h"

namespace tailor::test {
namespace {

using Operands = std::vector<std::optional<at::Tensor>>;

at::Tensor random(at::IntArrayRef shape, at::ScalarType type = at::kDouble) {
  return at::randn(shape, at::kDouble).to(type);
}

// As a rewritten graph asks, by name, and as files of before do, with a list. `said` is what stands beside the operands.
torch::jit::Stack asked(const char* guard, const torch::jit::Stack& linear, const Operands& operands,
                        const torch::jit::Stack& said) {
  torch::jit::Stack named = linear, listed = linear;
  listed.emplace_back(c10::List<std::optional<at::Tensor>>(operands));
  for (auto* stack : {&named, &listed}) stack->insert(stack->end(), said.begin(), said.end());
  for (const auto& operand : operands) named.emplace_back(operand);
  named.resize(linear.size() + said.size() + Chain::max_operands);  // None for the others
  op(guard, "each").callBoxed(named);
  op(guard).callBoxed(listed);
  const auto last = [](const torch::jit::Stack& stack) -> c10::IValue {
    return stack.back().isTensor() ? c10::IValue(stack.back().toTensor().sizes()) : stack.back();
  };
  EXPECT_EQ(last(named), last(listed));
  return named;
}

// What check says of the result's shape.
at::Tensor check(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b, const Operands& operands,
                 const char* chain, int last, const char* spelling = "") {
  const auto said = asked("check", {x, w, b}, operands, {std::string(chain), last, std::string(spelling)});
  EXPECT_TRUE(said.at(0).toTensor().is_same(x));
  return said.at(1).toTensor();
}

constexpr const char* mul_bn = "linear_mul_batch_norm";

TEST(Check, ShapesWithoutWork) {
  const auto x = random({7, 5}), w = random({12, 5}), b = random({12});
  EXPECT_EQ(check(x, w, b, {}, mul_bn, 0).sizes(), (at::IntArrayRef{7, 12}));
  EXPECT_TRUE(check(x, w, b, {}, mul_bn, 0).is_meta());  // no work was done
  EXPECT_EQ(check(random({5}), w, std::nullopt, {}, mul_bn, 0).sizes(), (at::IntArrayRef{12}));
  EXPECT_EQ(check(random({2, 3, 5}), w, b, {}, mul_bn, 0).sizes(), (at::IntArrayRef{2, 3, 12}));
  EXPECT_EQ(check(random({0, 5}), w, b, {}, mul_bn, 0).sizes(), (at::IntArrayRef{0, 12}));
  for (const auto& [scale, wanted] :
       std::vector<std::pair<at::Tensor, std::vector<std::int64_t>>>{{random({12}), {7, 12}},
                                                                     {random({1}), {7, 12}},
                                                                     {random({}), {7, 12}},
                                                                     {random({7, 1}), {7, 12}},
                                                                     {random({2, 1, 12}), {2, 7, 12}},
                                                                     {random({2, 7, 1}), {2, 7, 12}},
                                                                     {random({12}, at::kFloat), {7, 12}}}) {
    EXPECT_EQ(check(x, w, b, {scale}, mul_bn, 2).sizes(), at::IntArrayRef(wanted)) << scale.sizes();
    EXPECT_EQ(check(x, w, b, {scale}, mul_bn, 2).sizes(), (at::linear(x, w, b) * scale).sizes());
  }
}

TEST(Check, RaisesWhatEagerRaises) {
  const auto x = random({7, 5}), w = random({12, 5}), b = random({12});
  for (const auto& wrong :
       {random({7, 6}), random({6}), random({}), random({7, 5}, at::kFloat), random({7, 5}, at::kLong)}) {
    const std::string wanted = message_of([&] { at::linear(wrong, w, b); });
    EXPECT_NE(wanted, "");
    EXPECT_EQ(message_of([&] { check(wrong, w, b, {}, mul_bn, 0); }), wanted);
  }
  EXPECT_EQ(message_of([&] { check(x, w, random({13}), {}, mul_bn, 0); }),
            message_of([&] { at::linear(x, w, random({13})); }));
  EXPECT_EQ(message_of([&] { check(x, w, b, {random({13})}, mul_bn, 2); }),
            message_of([&] { at::linear(x, w, b).mul(random({13})); }));
  EXPECT_EQ(message_of([&] { check(x, w, b, {random({13})}, mul_bn, 0); }), "");  // not read yet
  EXPECT_NE(
      message_of([&] { check(x, w, b, {}, "linear_nothing", 0); }).find("this library has no chain 'linear_nothing'"),
      std::string::npos);
  EXPECT_NE(message_of([&] { check(x, w, b, {}, mul_bn, 9); }).find("has no step 9"), std::string::npos);
}

// An author who spelled the chain otherwise gets that spelling's errors.
TEST(Check, RaisesAsSpelled) {
  const auto x = random({7, 5}), w = random({12, 5}), b = random({12});
  const auto wide = random({2, 7, 12}), batch = random({4, 7, 5}), tall = random({7, 6});
  EXPECT_EQ(message_of([&] { check(batch, w, b, {}, mul_bn, 0, "addmm"); }),
            message_of([&] { at::addmm(b, batch, w.t()); }));
  EXPECT_EQ(message_of([&] { check(batch, w, b, {}, mul_bn, 0, "mm"); }), message_of([&] { at::mm(batch, w.t()); }));
  EXPECT_EQ(message_of([&] { check(tall, w, b, {}, mul_bn, 0, "addmm"); }),
            message_of([&] { at::addmm(b, tall, w.t()); }));
  EXPECT_NE(message_of([&] { check(batch, w, b, {}, mul_bn, 0, "addmm"); }), "");
  EXPECT_EQ(check(batch, w, b, {}, mul_bn, 0, "matmul").sizes(), (at::IntArrayRef{4, 7, 12}));
  EXPECT_EQ(check(x, w, b, {wide}, mul_bn, 2).sizes(), (at::IntArrayRef{2, 7, 12}));
  EXPECT_EQ(message_of([&] {
              check(x, random({12, 6}), b, {}, mul_bn, 0, "matmul:permute");
            }),
            message_of([&] {
              at::matmul(x, random({12, 6}).permute({1, 0}));
            }));
  EXPECT_EQ(message_of([&] {
              check(x, random({3, 12, 5}), b, {}, mul_bn, 0, "matmul:permute");
            }),
            message_of([&] {
              at::matmul(x, random({3, 12, 5}).permute({1, 0}));
            }));
  const auto many = random({13});
  EXPECT_EQ(message_of([&] { check(x, w, many, {}, mul_bn, 0, "sum"); }),
            message_of([&] { at::add(at::linear(x, w), many); }));
  EXPECT_EQ(check(x, w, wide, {}, mul_bn, 0, "sum").sizes(), (at::IntArrayRef{2, 7, 12}));
  for (const auto& wrong : {random({12, 6}), random({3, 12, 5}), random({4}), w.to(at::kDouble)})
    EXPECT_EQ(message_of([&] { check(x, wrong, b, {}, mul_bn, 0, "sum"); }), message_of([&] { at::linear(x, wrong); }));
  EXPECT_EQ(message_of([&] { check(random({}), w, b, {}, mul_bn, 0, "sum"); }),
            message_of([&] { at::linear(random({}), w); }));
  EXPECT_EQ(message_of([&] { check(x, w, b, {many}, mul_bn, 2, "linear reversed:2"); }),
            message_of([&] { at::mul(many, at::linear(x, w, b)); }));
}

// silu takes no integers; where nothing else is unusual its spelling costs no work.
TEST(Check, OfSilu) {
  constexpr const char* add_swish_gn = "linear_add_swish_group_norm";
  const auto x = random({7, 5}), w = random({12, 5}), b = random({12}), addend = random({12}, at::kLong);
  const auto whole = [](const at::Tensor& t) { return t.to(at::kLong); };
  EXPECT_EQ(message_of([&] { check(whole(x), whole(w), whole(b), {addend}, add_swish_gn, 3); }), "");
  EXPECT_EQ(message_of([&] { check(whole(x), whole(w), whole(b), {addend}, add_swish_gn, 3, "linear silu:3"); }),
            message_of([&] { at::silu(addend); }));
  EXPECT_NE(message_of([&] { at::silu(addend); }), "");
  for (const char* spelling : {"linear silu:3", "linear reversed:2 silu:3"}) {
    const auto shape = check(random({2, 7, 5}), w, b, {random({2, 1, 12})}, add_swish_gn, 3, spelling);
    EXPECT_TRUE(shape.is_meta()) << spelling;
    EXPECT_EQ(shape.sizes(), (at::IntArrayRef{2, 7, 12})) << spelling;
  }
}

// What only a forged file says.
TEST(Check, OfAddmmWithoutBias) {
  const auto x = random({2, 7, 5}), w = random({12, 5});
  EXPECT_EQ(check(x, w, std::nullopt, {random({12})}, "linear_mul_batch_norm", 2, "addmm:t").sizes(),
            (at::IntArrayRef{2, 7, 12}));
}

at::Tensor unwritten(const at::Tensor& value, const at::Tensor& written) {
  torch::jit::Stack stack{value, written};
  op("unwritten", "one").callBoxed(stack);
  return stack.at(0).toTensor();
}

TEST(Unwritten, CopiesOnlyWhatShares) {
  const auto value = random({4, 3});
  EXPECT_TRUE(unwritten(value, random({4, 3})).is_same(value));
  EXPECT_TRUE(unwritten(value, at::zeros({}, at::kLong)).is_same(value));
  for (const auto& target : {value, value.view(-1), value[1], value.t(), value.slice(0, 2, 3), value.view(at::kLong)}) {
    const auto held = unwritten(value, target);
    EXPECT_FALSE(held.is_alias_of(value));
    EXPECT_TRUE(at::equal(held, value));
  }
  // Another storage over the same memory.
  const auto outside = at::from_blob(value.data_ptr<double>() + 3, {3}, at::kDouble);
  EXPECT_FALSE(unwritten(value, outside).is_alias_of(value));
  const auto behind = at::from_blob(value.data_ptr<double>() + 12, {0}, at::kDouble);
  EXPECT_TRUE(unwritten(value, behind).is_same(value));
}

// As `.grad` of a script may be: who reads it raises eager's error, which a copy would forestall.
TEST(Unwritten, HandsOnWhatIsUndefined) {
  EXPECT_FALSE(unwritten(at::Tensor(), random({2})).defined());
  EXPECT_FALSE(unwritten(at::Tensor(), at::Tensor()).defined());
}

TEST(Unwritten, Optional) {
  torch::jit::Stack stack{c10::IValue(), random({2})};
  op("unwritten", "optional_one").callBoxed(stack);
  EXPECT_TRUE(stack.at(0).isNone());
  const auto value = random({2});
  stack = {value, value};
  op("unwritten", "optional_one").callBoxed(stack);
  EXPECT_FALSE(stack.at(0).toTensor().is_alias_of(value));
}

// Files of before have lists.
TEST(Unwritten, OfLists) {
  const auto value = random({4, 3});
  for (const char* overload : {"", "optional"}) {
    const auto held = [&](const std::vector<at::Tensor>& written) {
      torch::jit::Stack stack{value, c10::List<at::Tensor>(written)};
      op("unwritten", overload).callBoxed(stack);
      return stack.at(0).toTensor();
    };
    EXPECT_TRUE(held({}).is_same(value));
    EXPECT_TRUE(held({random({4, 3}), at::zeros({}, at::kLong)}).is_same(value));
    EXPECT_FALSE(held({random({1}), value[1], random({2})}).is_alias_of(value));
  }
}

bool uniform(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b, const Operands& operands,
             bool inference_only = false) {
  return asked("uniform", {x, w, b}, operands, {inference_only, false}).at(0).toBool();
}

TEST(Uniform, WhereNoSpellingMatters) {
  const auto x = random({7, 5}), w = random({12, 5}), b = random({12});
  EXPECT_TRUE(uniform(x, w, b, {}));
  EXPECT_TRUE(uniform(x, w, b, {}, /*inference_only=*/true));
  EXPECT_FALSE(uniform(x, w, b, {random({12}).requires_grad_()}, /*inference_only=*/true));
  EXPECT_TRUE(uniform(x, w, std::nullopt, {random({12}), std::nullopt, random({1}), random({7, 12})}));
  EXPECT_TRUE(uniform(x, w, std::nullopt, {random({})}));
  Operands fitting(4, random({12}));
  for (std::size_t i = 0; i < fitting.size(); ++i) {  // each is looked at
    Operands one_does_not = fitting;
    one_does_not[i] = random({13});
    EXPECT_TRUE(uniform(x, w, b, fitting));
    EXPECT_FALSE(uniform(x, w, b, one_does_not)) << i;
  }
  EXPECT_FALSE(uniform(x, w, b, {random({2, 7, 12})}));            // would raise the rank, which mul_ cannot
  EXPECT_FALSE(uniform(random({1, 5}), w, b, {random({7, 12})}));  // would grow a dimension
  EXPECT_FALSE(uniform(x, w, b, {random({13})}));
  EXPECT_FALSE(uniform(x, w, b, {random({12}, at::kFloat)}));  // promotes otherwise
  EXPECT_FALSE(uniform(random({7, 5}, at::kFloat), w, b, {}));
  EXPECT_FALSE(uniform(random({4, 7, 5}), w, b, {}));  // addmm takes matrices
  EXPECT_FALSE(uniform(random({5}), w, b, {}));
  EXPECT_FALSE(uniform(x, random({12, 6}), b, {}));
  EXPECT_FALSE(uniform(x, random({3, 5, 5}), std::nullopt, {}));  // weights in a stack
  EXPECT_FALSE(uniform(x, w, random({1}), {}));                   // addmm broadcasts its bias
  EXPECT_FALSE(uniform(x, w, random({7, 12}), {}));
  EXPECT_FALSE(uniform(x.to(at::kLong), w.to(at::kLong), b.to(at::kLong), {}));
}

TEST(Uniform, NotUnderAutocast) {
  const auto x = random({7, 5}, at::kFloat), w = random({12, 5}, at::kFloat);
  EXPECT_TRUE(uniform(x, w, std::nullopt, {}));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  EXPECT_FALSE(uniform(x, w, std::nullopt, {}));
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

bool order_is_nothing(const at::Tensor& x, const at::Tensor& w, const Operands& operands) {
  return asked("uniform", {x, w, c10::IValue()}, operands, {false, true}).at(0).toBool();
}

TEST(Uniform, WhereNoOrderShows) {
  const auto x = random({7, 5}), w = random({12, 5}), deep = random({3, 7, 5});
  EXPECT_TRUE(order_is_nothing(x, w, {random({12}), std::nullopt, random({7, 12}), random({})}));
  EXPECT_TRUE(order_is_nothing(deep, w, {random({12}), random({2, 3, 7, 12})}));
  EXPECT_TRUE(order_is_nothing(x, w, {random({12}, at::kFloat)}));  // promoted the same on both sides
  EXPECT_TRUE(order_is_nothing(x, w, {random({24}).slice(0, 0, 24, 2)}));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  EXPECT_TRUE(order_is_nothing(x.to(at::kFloat), w.to(at::kFloat), {random({12}, at::kFloat)}));
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

TEST(Uniform, WhereTheOrderShows) {
  const auto x = random({7, 5}), w = random({12, 5});
  for (const auto& across : {random({12, 7}).t(), random({12, 7, 3}).permute({2, 1, 0}),
                             random({1, 12}).expand({7, 12}), random({2, 1, 12}).as_strided({2, 1, 12}, {12, 1, 1})}) {
    EXPECT_FALSE(order_is_nothing(x, w, {random({12}), across}));
    EXPECT_FALSE(uniform(x, w, std::nullopt, {across}));
  }
  EXPECT_FALSE(order_is_nothing(x, w, {random({12, 12}).to_sparse()}));  // left of a dense one it is refused
  EXPECT_FALSE(order_is_nothing(x, w, {random({12})._neg_view()}));
  EXPECT_FALSE(order_is_nothing(x, w, {random({13})}));  // in which order are the sizes named?
  EXPECT_FALSE(order_is_nothing(x, random({12, 6}), {}));
  EXPECT_FALSE(order_is_nothing(x.to(at::kLong), w.to(at::kLong), {}));
}

}  // namespace
}  // namespace tailor::test
