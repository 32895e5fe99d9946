// What a chain becomes, as whole graphs: every spelling of every rule, and what is put before the op where the author's
// own nodes stand inside the chain. Both sides are TorchScript; a row's graphs are compared as text, run and compared,
// rewritten a second time and taken back.
#include "passes/rewrite.h"

#include <gtest/gtest.h>

#include <ostream>

#include "ir.h"

namespace tailor::test {
namespace {

struct Spelling {
  const char* name;
  const char* rule;
  const char* body;
  const char* wanted;      // the body after the pass
  const char* check = "";  // the one that says how the chain is spelled

  friend void PrintTo(const Spelling& row, std::ostream* out) { *out << row.name; }
};

constexpr const char* mul_bn = "linear_mul_batch_norm";
constexpr const char* sigmoid_mul_add = "linear_sigmoid_mul_add";
constexpr const char* add_swish_gn = "linear_add_swish_group_norm";
constexpr const char* swish_add_gn = "linear_swish_add_group_norm";
constexpr const char* bn_add_div_swish = "linear_batch_norm_add_div_swish";
constexpr const char* gn_swish_mul_swish = "linear_group_norm_swish_mul_swish";

class Rewrites : public testing::TestWithParam<Spelling> {};

TEST_P(Rewrites, ToThisGraph) {
  const Spelling& row = GetParam();
  const auto graph = graph_of(net(row.body));
  const auto sites = fuse_graph(graph);
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_TRUE(sites[0].fused) << sites[0].reason;
  EXPECT_EQ(sites[0].rule, row.rule);
  EXPECT_EQ(sites[0].reason, "");
  EXPECT_EQ(sites[0].method, "forward");
  EXPECT_EQ(take_checks(graph), row.check);
  EXPECT_EQ(text(graph), text(graph_of(net(row.wanted))));
}

TEST_P(Rewrites, AndComputesTheSame) {
  const Spelling& row = GetParam();
  const Module module = net(row.body);
  const auto graph = graph_of(module);
  fuse_graph(graph);
  EXPECT_EQ(difference(graph_of(module), graph, module), "");
}

TEST_P(Rewrites, OnlyOnce) {
  const auto graph = graph_of(net(GetParam().body));
  fuse_graph(graph);
  const std::string once = graph->toString(false);
  const auto sites = fuse_graph(graph);
  EXPECT_EQ(graph->toString(false), once);
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_TRUE(sites[0].fused);
  EXPECT_EQ(sites[0].rule, GetParam().rule);
}

TEST_P(Rewrites, AndBack) {
  const Module module = net(GetParam().body);
  const auto graph = graph_of(module);
  fuse_graph(graph);
  std::vector<Site> sites;
  ASSERT_TRUE(unfuse_graph(graph, sites, "forward"));
  graph->lint();
  EXPECT_EQ(graph->toString(false).find("tailor::"), std::string::npos) << graph->toString(false);
  EXPECT_EQ(difference(graph_of(module), graph, module), "");
  ASSERT_EQ(fuse_graph(graph).size(), 1u);
  EXPECT_TRUE(has(*graph, std::string("tailor::") + GetParam().rule));
}

std::string name_of_spelling(const testing::TestParamInfo<Spelling>& info) { return info.param.name; }

// The op as its author would call it: nothing stands inside the chain and the spelling promotes as the formula does.
const Spelling plain[] = {
    {"MulBn", mul_bn, "return self.batch_norm(self.linear(x) * self.scale)", "return self.mul_bn(x)"},
    {"MulBnFunction", mul_bn, "return self.batch_norm(torch.mul(self.linear(x), self.scale))", "return self.mul_bn(x)"},
    {"MulBnMethod", mul_bn, "y = torch.linear(x, self.w, self.b); y = y.mul(self.scale); return self.batch_norm(y)",
     "return self.mul_bn(x)"},
    {"MulBnMultiply", mul_bn, "return self.batch_norm(torch.multiply(self.linear(x), self.scale))",
     "return self.mul_bn(x)"},
    {"MulBnNoBias", mul_bn, "return self.batch_norm(torch.linear(x, self.w) * self.scale)",
     "return tailor.linear_mul_batch_norm(x, self.w, None, self.scale, self.gamma, self.beta, self.mean, self.var, "
     "self.training, 0.1, 0.001, True)"},
    {"MulBnNothingOptional", mul_bn,
     "return torch.batch_norm(self.linear(x) * self.scale, None, None, None, None, True, 0.1, 0.001, False)",
     "return tailor.linear_mul_batch_norm(x, self.w, self.b, self.scale, None, None, None, None, True, 0.1, 0.001, "
     "False)"},
    {"MulBnInference", mul_bn, "return self.frozen_bn(self.linear(x) * self.scale)",
     "return tailor.linear_mul_batch_norm(x, self.w, self.b, self.scale, self.gamma, self.beta, self.mean, self.var, "
     "0.001, True)"},
    {"MulBnComputedScale", mul_bn, "s = self.scale + 1.0; return self.batch_norm(self.linear(x) * s)",
     "return tailor.linear_mul_batch_norm(x, self.w, self.b, self.scale + 1.0, self.gamma, self.beta, self.mean, "
     "self.var, self.training, 0.1, 0.001, True)"},

    {"SigmoidMulAdd", sigmoid_mul_add, "y = self.linear(x); return torch.sigmoid(y) * self.factor + y",
     "return self.sigmoid_mul_add(x)"},
    {"SigmoidMulAddResidualFirst", sigmoid_mul_add, "y = self.linear(x); return y + torch.sigmoid(y) * self.factor",
     "return self.sigmoid_mul_add(x)"},
    {"SigmoidMulAddFactorFirst", sigmoid_mul_add, "y = self.linear(x); return self.factor * y.sigmoid() + y",
     "return self.sigmoid_mul_add(x)"},
    {"SigmoidMulAddAlphaOne", sigmoid_mul_add,
     "y = self.linear(x); return torch.add(torch.sigmoid(y) * self.factor, y, alpha=1)",
     "return self.sigmoid_mul_add(x)"},
    {"SigmoidMulAddInteger", sigmoid_mul_add, "y = self.linear(x); return torch.sigmoid(y) * self.count + y",
     "return tailor.linear_sigmoid_mul_add(x, self.w, self.b, self.count)"},
    {"SigmoidMulAddConstant", sigmoid_mul_add, "y = self.linear(x); return torch.sigmoid(y) * 0.5 + y",
     "return tailor.linear_sigmoid_mul_add(x, self.w, self.b, 0.5)"},
    {"SigmoidMulAddTensor", sigmoid_mul_add, "y = self.linear(x); return torch.sigmoid(y) * self.one + y",
     "return tailor.linear_sigmoid_mul_add(x, self.w, self.b, self.one)"},

    {"AddSwishGn", add_swish_gn, "y = self.linear(x) + self.scale; return self.group_norm(y * torch.sigmoid(y))",
     "return self.add_swish_gn(x)"},
    {"AddSwishGnSigmoidFirst", add_swish_gn,
     "y = self.linear(x) + self.scale; return self.group_norm(torch.sigmoid(y) * y)", "return self.add_swish_gn(x)"},
    {"AddSwishGnSilu", add_swish_gn, "return self.group_norm(torch.silu(self.linear(x) + self.scale))",
     "return self.add_swish_gn(x)", "3 linear silu:3"},
    {"AddSwishGnFunction", add_swish_gn, "return self.group_norm(self.swish(torch.add(self.linear(x), self.scale)))",
     "return self.add_swish_gn(x)"},
    {"AddSwishGnNoAffine", add_swish_gn,
     "return torch.group_norm(self.swish(self.linear(x) + self.scale), 4, None, None, 0.1, False)",
     "return tailor.linear_add_swish_group_norm(x, self.w, self.b, self.scale, 4, None, None, 0.1, False)"},

    {"SwishAddGn", swish_add_gn, "y = self.linear(x); return self.group_norm(torch.sigmoid(y) * y + self.scale)",
     "return self.swish_add_gn(x)"},
    {"SwishAddGnSigmoidSecond", swish_add_gn,
     "y = self.linear(x); return self.group_norm(y * y.sigmoid() + self.scale)", "return self.swish_add_gn(x)"},
    {"SwishAddGnSilu", swish_add_gn, "return self.group_norm(torch.silu(self.linear(x)) + self.scale)",
     "return self.swish_add_gn(x)", "3 linear silu:1"},

    {"BnAddDivSwish", bn_add_div_swish,
     "y = (self.batch_norm(self.linear(x)) + self.one) / self.factor; return y * torch.sigmoid(y)",
     "return self.bn_add_div_swish(x)"},
    {"BnAddDivSwishSilu", bn_add_div_swish,
     "return torch.silu(torch.div(torch.add(self.batch_norm(self.linear(x)), self.one), self.factor))",
     "return tailor.as_silu(self.bn_add_div_swish(x), 'linear silu:6')"},
    {"BnAddDivSwishTensorDivisor", bn_add_div_swish,
     "return self.swish((self.batch_norm(self.linear(x)) + self.one) / self.scale)",
     "return tailor.linear_batch_norm_add_div_swish(x, self.w, self.b, self.gamma, self.beta, self.mean, self.var, "
     "self.training, 0.1, 0.001, True, self.one, self.scale)"},
    {"BnAddDivSwishInference", bn_add_div_swish,
     "return self.swish((self.frozen_bn(self.linear(x)) + self.one) / self.count)",
     "return tailor.linear_batch_norm_add_div_swish(x, self.w, self.b, self.gamma, self.beta, self.mean, self.var, "
     "0.001, True, self.one, self.count)"},
    {"BnAddDivSwishInferenceTensor", bn_add_div_swish,
     "return self.swish((self.frozen_bn(self.linear(x)) + self.one) / self.scale)",
     "return tailor.linear_batch_norm_add_div_swish(x, self.w, self.b, self.gamma, self.beta, self.mean, self.var, "
     "0.001, True, self.one, self.scale)"},

    {"GnSwishMulSwish", gn_swish_mul_swish,
     "y = self.group_norm(self.linear(x)); y = y * torch.sigmoid(y); y = y * self.scale; return y * torch.sigmoid(y)",
     "return self.gn_swish_mul_swish(x)"},
    {"GnSwishMulSwishSigmoidFirst", gn_swish_mul_swish,
     "y = self.group_norm(self.linear(x)); y = torch.sigmoid(y) * y * self.scale; return torch.sigmoid(y) * y",
     "return self.gn_swish_mul_swish(x)"},
    {"GnSwishMulSwishMixed", gn_swish_mul_swish,
     "return torch.silu(self.swish(self.group_norm(self.linear(x))) * self.scale)",
     "return tailor.as_silu(self.gn_swish_mul_swish(x), 'linear silu:5')"},
    {"GnSwishMulSwishMixedSwish", gn_swish_mul_swish,
     "return self.swish(torch.silu(self.group_norm(self.linear(x))) * self.scale)", "return self.gn_swish_mul_swish(x)",
     "0 linear silu:2"},
};
INSTANTIATE_TEST_SUITE_P(Plain, Rewrites, testing::ValuesIn(plain), name_of_spelling);

// Spellings that promote or broadcast in another way than the formula: the op where that makes no difference, else the
// spelling itself.
#define GUARDED(bias, operands, fused, as_written)                                                                     \
  "if tailor.uniform(x, self.w, " bias ", False, False, " operands "):\n    r = " fused "\nelse:\n    r = " as_written \
  "\nreturn r"
#define MUL_BN(bias)                                           \
  "tailor.linear_mul_batch_norm(x, self.w, " bias              \
  ", self.scale, self.gamma, self.beta, self.mean, self.var, " \
  "self.training, 0.1, 0.001, True)"
#define ADDMM "torch.addmm(self.b, x, self.w.t())"

const Spelling guarded[] = {
    {"MulBnAddmm", mul_bn, "return self.batch_norm(" ADDMM " * self.scale)",
     GUARDED("self.b", "self.scale", "self.mul_bn(x)", "self.batch_norm(" ADDMM " * self.scale)")},
    {"MulBnMatmulAdd", mul_bn, "return self.batch_norm((x @ self.w.t() + self.b) * self.scale)",
     GUARDED("self.b", "self.scale", "self.mul_bn(x)", "self.batch_norm((x @ self.w.t() + self.b) * self.scale)")},
    {"MulBnBiasFirst", mul_bn, "return self.batch_norm((self.b + x.matmul(self.w.t())) * self.scale)",
     GUARDED("self.b", "self.scale", "self.mul_bn(x)",
             "self.batch_norm((self.b + x.matmul(self.w.t())) * self.scale)")},
    {"MulBnSum", mul_bn, "return self.batch_norm((torch.linear(x, self.w) + self.b) * self.scale)",
     GUARDED("self.b", "self.scale", "self.mul_bn(x)",
             "self.batch_norm((torch.linear(x, self.w) + self.b) * self.scale)")},
    {"MulBnMatmul", mul_bn, "return self.batch_norm(torch.matmul(x, self.w.t()) * self.scale)",
     GUARDED("None", "self.scale", MUL_BN("None"), "self.batch_norm(torch.matmul(x, self.w.t()) * self.scale)")},
    {"MulBnMm", mul_bn, "return self.batch_norm(self.scale * torch.mm(x, self.w.transpose(0, 1)))",
     GUARDED("None", "self.scale", MUL_BN("None"),
             "self.batch_norm(self.scale * torch.mm(x, self.w.transpose(0, 1)))")},
    {"MulBnTransposeBack", mul_bn, "return self.batch_norm((x @ self.w.transpose(-1, -2) + self.b) * self.scale)",
     GUARDED("self.b", "self.scale", "self.mul_bn(x)",
             "self.batch_norm((x @ self.w.transpose(-1, -2) + self.b) * self.scale)")},
    {"MulBnTransposeMixed", mul_bn, "return self.batch_norm((x @ self.w.transpose(1, -2) + self.b) * self.scale)",
     GUARDED("self.b", "self.scale", "self.mul_bn(x)",
             "self.batch_norm((x @ self.w.transpose(1, -2) + self.b) * self.scale)")},
    {"MulBnT", mul_bn, "return self.batch_norm((x @ self.w.T + self.b) * self.scale)",
     GUARDED("self.b", "self.scale", "self.mul_bn(x)", "self.batch_norm((x @ self.w.T + self.b) * self.scale)")},
    {"MulBnInPlace", mul_bn, "return self.batch_norm(self.linear(x).mul_(self.scale))",
     GUARDED("self.b", "self.scale", "self.mul_bn(x)", "self.batch_norm(self.linear(x).mul_(self.scale))")},
    {"MulBnInPlaceStatement", mul_bn, "y = self.linear(x); y *= self.scale; return self.batch_norm(y)",
     GUARDED("self.b", "self.scale", "self.mul_bn(x)", "self.batch_norm(self.linear(x).mul_(self.scale))")},
    {"MulBnBiasInPlace", mul_bn, "return self.batch_norm((x @ self.w.t()).add_(self.b) * self.scale)",
     GUARDED("self.b", "self.scale", "self.mul_bn(x)", "self.batch_norm((x @ self.w.t()).add_(self.b) * self.scale)")},
    {"SigmoidMulAddInPlace", sigmoid_mul_add, "y = self.linear(x); return (y.sigmoid() * self.factor).add_(y)",
     "if tailor.uniform(x, self.w, self.b, False, False, None):\n    r = self.sigmoid_mul_add(x)\n"
     "else:\n    y = self.linear(x)\n    r = (y.sigmoid() * self.factor).add_(y)\nreturn r"},
    {"AddSwishGnInPlace", add_swish_gn, "return self.group_norm(self.swish(self.linear(x).add_(self.scale)))",
     GUARDED("self.b", "self.scale", "self.add_swish_gn(x)",
             "self.group_norm(self.swish(self.linear(x).add_(self.scale)))")},
    {"AddSwishGnSiluInPlace", add_swish_gn, "return self.group_norm(torch.silu_(self.linear(x) + self.scale))",
     GUARDED("self.b", "self.scale", "self.add_swish_gn(x)",
             "self.group_norm(torch.silu_(self.linear(x) + self.scale))")},
    {"SwishAddGnInPlace", swish_add_gn, "return self.group_norm(torch.silu_(self.linear(x)).add_(self.scale))",
     GUARDED("self.b", "self.scale", "self.swish_add_gn(x)",
             "self.group_norm(torch.silu_(self.linear(x)).add_(self.scale))")},
    {"SigmoidMulAddOverwritten", sigmoid_mul_add, "y = self.linear(x); return y.sigmoid().mul_(self.factor).add_(y)",
     "if tailor.uniform(x, self.w, self.b, True, False, None):\n    r = self.sigmoid_mul_add(x)\n"
     "else:\n    y = self.linear(x)\n    r = y.sigmoid().mul_(self.factor).add_(y)\nreturn r"},
    {"SwishAddGnOverwritten", swish_add_gn,
     "y = self.linear(x); return self.group_norm(torch.sigmoid(y).mul_(y) + self.scale)",
     "if tailor.uniform(x, self.w, self.b, True, False, self.scale):\n    r = self.swish_add_gn(x)\n"
     "else:\n    y = self.linear(x)\n    r = self.group_norm(torch.sigmoid(y).mul_(y) + "
     "self.scale)\nreturn r"},
    {"BnAddDivSwishInPlace", bn_add_div_swish,
     "return torch.silu_(self.batch_norm(self.linear(x)).add_(self.one).div_(self.factor))",
     GUARDED("self.b", "self.one, None", "self.bn_add_div_swish(x)",
             "torch.silu_(self.batch_norm(self.linear(x)).add_(self.one).div_(self.factor))")},
    {"GnSwishMulSwishInPlace", gn_swish_mul_swish,
     "return torch.silu_(torch.silu_(self.group_norm(self.linear(x))).mul_(self.scale))",
     GUARDED("self.b", "self.scale", "self.gn_swish_mul_swish(x)",
             "torch.silu_(torch.silu_(self.group_norm(self.linear(x))).mul_(self.scale))")},
};
INSTANTIATE_TEST_SUITE_P(Guarded, Rewrites, testing::ValuesIn(guarded), name_of_spelling);

// The order of operands shows in strides, and in what eager says of sizes that do not fit.
#define ORDERED(operands, fused, as_written)                                         \
  "if tailor.uniform(x, self.w, self.b, False, True, " operands "):\n    r = " fused \
  "\n"                                                                               \
  "else:\n" as_written "\nreturn r"

const Spelling ordered[] = {
    {"MulBnScaleFirst", mul_bn, "return self.batch_norm(self.scale * self.linear(x))",
     ORDERED("self.scale", "self.mul_bn(x)", "    r = self.batch_norm(self.scale * self.linear(x))")},
    {"SigmoidMulAddVector", sigmoid_mul_add, "y = self.linear(x); return self.scale * torch.sigmoid(y) + y",
     ORDERED("self.scale", "tailor.linear_sigmoid_mul_add(x, self.w, self.b, self.scale)",
             "    y = self.linear(x)\n    r = self.scale * torch.sigmoid(y) + y")},
    {"SigmoidMulAddTensorResidualFirst", sigmoid_mul_add, "y = self.linear(x); return y + torch.sigmoid(y) * self.one",
     ORDERED("self.one", "tailor.linear_sigmoid_mul_add(x, self.w, self.b, self.one)",
             "    y = self.linear(x)\n    r = y + torch.sigmoid(y) * self.one")},
    {"AddSwishGnSiluAddendFirst", add_swish_gn, "return self.group_norm(torch.silu(self.scale + self.linear(x)))",
     ORDERED("self.scale", "self.add_swish_gn(x)", "    r = self.group_norm(torch.silu(self.scale + self.linear(x)))")},
    {"AddSwishGnAddendFirst", add_swish_gn, "return self.group_norm(self.swish(self.scale + self.linear(x)))",
     ORDERED("self.scale", "self.add_swish_gn(x)", "    r = self.group_norm(self.swish(self.scale + self.linear(x)))")},
    {"SwishAddGnAddendFirst", swish_add_gn, "return self.group_norm(self.scale + self.swish(self.linear(x)))",
     ORDERED("self.scale", "self.swish_add_gn(x)", "    r = self.group_norm(self.scale + self.swish(self.linear(x)))")},
    {"BnAddDivSwishSigmoidFirst", bn_add_div_swish,
     "y = (self.one + self.batch_norm(self.linear(x))) / self.factor; return torch.sigmoid(y) * y",
     ORDERED("self.one, None", "self.bn_add_div_swish(x)",
             "    y = (self.one + self.batch_norm(self.linear(x))) / self.factor\n    r = torch.sigmoid(y) * y")},
    {"GnSwishMulSwishSilu", gn_swish_mul_swish,
     "return torch.silu(self.scale * torch.silu(self.group_norm(self.linear(x))))",
     ORDERED("self.scale", "tailor.as_silu(self.gn_swish_mul_swish(x), 'linear silu:2 reversed:4 silu:5')",
             "    r = torch.silu(self.scale * torch.silu(self.group_norm(self.linear(x))))")},
};
INSTANTIATE_TEST_SUITE_P(Ordered, Rewrites, testing::ValuesIn(ordered), name_of_spelling);

// The dimensions are a list, which only the pass makes a constant: there is no TorchScript for the graph that it leaves.
TEST(Permuted, IsATranspose) {
  for (const char* product : {"x @ self.w.permute(1, 0) + self.b", "torch.mm(x, self.w.permute(-1, -2))"}) {
    const Module module = net("return self.bn((" + std::string(product) + ") * self.scale)");
    const auto graph = graph_of(module);
    const auto sites = fuse_graph(graph);
    ASSERT_EQ(sites.size(), 1u) << product;
    EXPECT_TRUE(sites[0].fused) << sites[0].reason;
    EXPECT_EQ(difference(graph_of(module), graph, module), "") << product;
    std::vector<Site> undone;
    ASSERT_TRUE(unfuse_graph(graph, undone, "forward"));
    graph->lint();
    EXPECT_FALSE(has(*graph, "tailor::check"));
    EXPECT_EQ(difference(graph_of(module), graph, module), "") << product;
  }
  const auto other = graph_of(net("return self.bn((x @ self.w.t().permute(0, 1)) * self.scale)"));
  const auto sites = fuse_graph(other);
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_FALSE(sites[0].fused);
  EXPECT_EQ(
      sites[0].reason,
      "`matmul` in net.py:2 multiplies by the result of `permute` in net.py:2, where a linear has the transpose of "
      "its weight, as in x @ w.t()");
}

}  // namespace
}  // namespace tailor::test
