// What is written in place is followed for the search, which the tests of the pass see, and then read as it was before.
#include "passes/in_place.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ir.h"

namespace tailor::test {
namespace {

// After a tensor was written to, its readers read what the last write before them returned, in blocks too.
constexpr const char* written = R"(
  %y : Tensor = aten::linear(%x, %w, %b)
  %c : bool = aten::is_floating_point(%x)
  %a : Tensor = aten::relu(%x)
  %a.1 : Tensor = aten::mul_(%a, %s)
  %d : Tensor = aten::relu(%a)
  %a.2 : Tensor = aten::mul_(%a.1, %s)
  %e : Tensor = prim::If(%c)
    block0():
      %a.3 : Tensor = aten::mul_(%a, %s)
      %f : Tensor = aten::relu(%a.1)
      -> (%f)
    block1():
      -> (%a)
  %a.4 : Tensor = aten::mul_(%a, %s)
  return (%y, %d, %e, %a, %a.1))";

TEST(InPlaceResults, AreFollowed) {
  const auto graph = parse(std::string(head) + written);
  const InPlaceResults results(graph->block());
  const auto wanted = parse(std::string(head) + R"(
  %y : Tensor = aten::linear(%x, %w, %b)
  %c : bool = aten::is_floating_point(%x)
  %a : Tensor = aten::relu(%x)
  %a.1 : Tensor = aten::mul_(%a, %s)
  %d : Tensor = aten::relu(%a.1)
  %a.2 : Tensor = aten::mul_(%a.1, %s)
  %e : Tensor = prim::If(%c)
    block0():
      %a.3 : Tensor = aten::mul_(%a.2, %s)
      %f : Tensor = aten::relu(%a.3)
      -> (%f)
    block1():
      -> (%a.2)
  %a.4 : Tensor = aten::mul_(%a.2, %s)
  return (%y, %d, %e, %a.4, %a.4))");
  EXPECT_EQ(text(graph), text(wanted));
}

TEST(InPlaceResults, AreGivenBack) {
  const auto graph = parse(std::string(head) + written);
  const InPlaceResults results(graph->block());
  results.give_back();
  EXPECT_EQ(text(graph), text(parse(std::string(head) + written)));
}

// The op reads what its chain had read, and who reads what the chain had written reads the op's result.
TEST(InPlaceResults, AreGivenBackAroundAnOp) {
  const auto graph = parse(std::string(head) + R"(
  %v : Tensor = aten::relu(%x)
  %v.1 : Tensor = aten::add_(%v, %one, %one)
  %y : Tensor = aten::linear(%v, %w, %b)
  %g : Tensor = aten::sigmoid(%y)
  %p : Tensor = aten::mul(%g, %s)
  %r : Tensor = aten::add_(%p, %y, %one)
  %p.1 : Tensor = aten::mul_(%p, %s)
  %t : Tensor = aten::relu(%v)
  return (%p, %r, %p.1, %t))");
  ASSERT_EQ(fuse_graph(graph).size(), 1u);
  const auto wanted = parse(std::string(head) + R"(
  %v : Tensor = aten::relu(%x)
  %v.1 : Tensor = aten::add_(%v, %one, %one)
  %no : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %uniform : bool = tailor::uniform(%v, %w, %b, %no, %no, %s, %none, %none, %none)
  %r : Tensor = prim::If(%uniform)
    block0():
      %fused : Tensor = tailor::linear_sigmoid_mul_add(%v, %w, %b, %s)
      -> (%fused)
    block1():
      %y : Tensor = aten::linear(%v, %w, %b)
      %g : Tensor = aten::sigmoid(%y)
      %p : Tensor = aten::mul(%g, %s)
      %as_written : Tensor = aten::add_(%p, %y, %one)
      -> (%as_written)
  %p.1 : Tensor = aten::mul_(%r, %s)
  %t : Tensor = aten::relu(%v)
  return (%r, %r, %p.1, %t))");
  EXPECT_EQ(text(graph), text(wanted));
}

// torch's executor, which is told of each value by itself who wants its gradient.
TEST(InPlaceResults, ChangeNoGradients) {
  const char* body =
      "t = torch.addmm(self.b2, x, self.w2.t())\n"
      "with no_grad():\n"
      "    t.add_(self.b)\n"
      "    s = t.sigmoid()\n"
      "h = t.sum() * 0.5 + s\n"
      "return self.batch_norm(self.linear(x) * self.scale) + h";
  const auto gradient = [](Module module, at::Tensor x) {
    x.requires_grad_();
    module.forward({x}).toTensor().sum().backward();
    return x.grad();
  };
  Module plain = net(body), fused = net(body);
  ASSERT_EQ(fuse(fused).sites.size(), 3u);
  ASSERT_TRUE(needs_tailor(fused));
  for (int i = 0; i < 4; ++i) {
    const auto x = [] { return at::ones({7, 5}, at::kDouble).cumsum(1); };
    EXPECT_TRUE(at::allclose(gradient(fused, x()), gradient(plain, x()))) << "call " << i;
  }
}

}  // namespace
}  // namespace tailor::test
