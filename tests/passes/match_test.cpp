// What is close to a rule and must not fuse, with the reason that the report gives. A body's first statement is on line 2
// of net.py. What is spelled otherwise and fuses is in rewrite_test.cpp; what is matched but not proven in prove_test.cpp.
#include "passes/match.h"

#include <gtest/gtest.h>

#include "ir.h"

namespace tailor::test {
namespace {

class NearMisses : public testing::TestWithParam<NearMiss> {};

TEST_P(NearMisses, StayAndSayWhy) { expect_stays(GetParam()); }

std::string name_of_row(const testing::TestParamInfo<NearMiss>& info) { return info.param.name; }

constexpr const char* none = "";
constexpr const char* mul_bn = "linear_mul_batch_norm";
constexpr const char* sigmoid_mul_add = "linear_sigmoid_mul_add";
constexpr const char* add_swish_gn = "linear_add_swish_group_norm";
constexpr const char* swish_add_gn = "linear_swish_add_group_norm";
constexpr const char* bn_add_div_swish = "linear_batch_norm_add_div_swish";
constexpr const char* gn_swish_mul_swish = "linear_group_norm_swish_mul_swish";

const NearMiss no_rule[] = {
    {"Returned", none, "return self.linear(x)", "its result is the method's result"},
    {"Unread", none, "y = self.linear(x); return x", "its result is used for nothing"},
    {"Relu", none, "return torch.relu(self.linear(x))",
     "its result goes to `relu` in net.py:2, with which no rule begins"},
    {"Cast", none, "return self.batch_norm(self.linear(x).double() * self.scale)",
     "its result goes to `to` in net.py:2, with which no rule begins"},
    {"View", none, "y = self.linear(x); y = y.view(y.size(0), y.size(1)); return self.batch_norm(y * self.scale)",
     "its result goes to `view` in net.py:3, with which no rule begins"},
    {"Detached", none, "return self.batch_norm(self.linear(x).detach() * self.scale)",
     "its result goes to `detach` in net.py:2, with which no rule begins"},
    {"Square", mul_bn, "y = self.linear(x); return self.batch_norm(y * y)",
     "`y`, an operand of the rule, is computed inside it by `linear` in net.py:2"},
    {"Pow", none, "return self.batch_norm(self.linear(x) ** 2)",
     "its result goes to `pow` in net.py:2, with which no rule begins"},
};
INSTANTIATE_TEST_SUITE_P(NoRule, NearMisses, testing::ValuesIn(no_rule), name_of_row);

const NearMiss mul_bn_rows[] = {
    {"Number", mul_bn, "return self.batch_norm(self.linear(x) * 2.0)",
     "scale of `mul` in net.py:2 is a number; the rule takes a tensor"},
    {"NumberAttribute", mul_bn, "return self.batch_norm(self.factor * self.linear(x))",
     "scale of `mul` in net.py:2 is a number; the rule takes a tensor"},
    {"ProductReturned", mul_bn, "y = self.linear(x) * self.scale; return self.batch_norm(y), y",
     "the result of `mul` in net.py:2 is also returned"},
    {"LinearReturned", mul_bn, "y = self.linear(x); return self.batch_norm(y * self.scale), y",
     "the result of `linear` in net.py:2 is also returned"},
    {"SecondReader", mul_bn, "y = self.linear(x); z = self.batch_norm(y * self.scale); return z + y.sum()",
     "the result of `linear` in net.py:2 is also read by `sum` in net.py:4"},
    {"InAList", mul_bn, "y = self.linear(x); kept = [y]; z = self.batch_norm(y * self.scale); return z + kept[0]",
     "the result of `linear` in net.py:2 is also read by a list for the subscript in net.py:5"},
    {"Divided", none, "return self.batch_norm(self.linear(x) / self.scale)",
     "its result goes to `div` in net.py:2, with which no rule begins"},
    {"OtherNorm", mul_bn, "return self.group_norm(self.linear(x) * self.scale)",
     "after `mul` in net.py:2 the rule wants batch_norm, found `group_norm` in net.py:2"},
    {"NoNorm", mul_bn, "return self.linear(x) * self.scale",
     "after `mul` in net.py:2 the rule wants batch_norm, found the method's result"},
    {"TwoScales", mul_bn, "y = self.linear(x) * self.scale; return self.batch_norm(y * self.other)",
     "after `mul` in net.py:2 the rule wants batch_norm, found `mul` in net.py:3"},
    {"InstanceNorm", mul_bn,
     "y = self.linear(x) * self.scale; return torch.instance_norm(y, None, None, None, None, True, 0.1, 0.001, False)",
     "after `mul` in net.py:2 the rule wants batch_norm, found `instance_norm` in net.py:3"},
    {"NormOfAnother", mul_bn, "y = self.linear(x) * self.scale; return self.batch_norm(y + self.other)",
     "after `mul` in net.py:2 the rule wants batch_norm, found `add` in net.py:3"},
    {"IntoTheScale", mul_bn, "s = self.scale + x.sum(); s.mul_(self.linear(x[0])); return s",
     "`mul_` in net.py:3 writes to another value than the rule's"},
    {"IntoItsOwnPlace", mul_bn, "y = self.linear(x); torch.mul(y, self.scale, out=y); return self.batch_norm(y)",
     "`mul` in net.py:3 has an alpha, a rounding mode or another form than a plain `mul`"},
    {"IfBorder", mul_bn, "y = self.linear(x)\nif x.size(0) > 3:\n    y = y * self.scale\nreturn self.batch_norm(y)",
     "after `linear` in net.py:2 the rule wants mul, but `mul` in net.py:4 stands in another branch or loop"},
    {"BothBranches", mul_bn,
     "y = self.linear(x)\nif x.size(0) > 3:\n    z = y * self.scale\nelse:\n    z = y * self.other\nreturn "
     "self.batch_norm(z)",
     "after `linear` in net.py:2 the rule wants mul, but `mul` in net.py:4 stands in another branch or loop"},
    {"AskedForItsDevice", mul_bn,
     "y = self.linear(x); z = torch.zeros([12], device=y.device); return self.batch_norm(y * self.scale) + z",
     "the result of `linear` in net.py:2 is also read by `device` for `zeros` in net.py:3"},
    {"LoopBorder", none, "y = self.linear(x)\nfor i in range(2):\n    y = y * self.scale\nreturn self.batch_norm(y)",
     "its result goes to the loop in net.py:3, with which no rule begins"},
    {"ScaleFromInside", mul_bn, "y = self.linear(x); return self.batch_norm(y * y.sum())",
     "the result of `linear` in net.py:2 is also read by `sum` in net.py:3"},
    {"AddmmBeta", none, "return self.batch_norm(torch.addmm(self.b, x, self.w.t(), beta=2) * self.scale)",
     "`addmm` in net.py:2 has an alpha or a beta"},
    {"AddmmAlpha", none, "return self.batch_norm(torch.addmm(self.b, x, self.w.t(), alpha=0.5) * self.scale)",
     "`addmm` in net.py:2 has an alpha or a beta"},
    {"BiasAlpha", add_swish_gn,
     "y = torch.add(x @ self.w.t(), self.b, alpha=2); return self.batch_norm(y * self.scale)",
     "`add` in net.py:2 has an alpha, a rounding mode or another form than a plain `add`"},
};
INSTANTIATE_TEST_SUITE_P(MulBn, NearMisses, testing::ValuesIn(mul_bn_rows), name_of_row);

const NearMiss sigmoid_mul_add_rows[] = {
    {"NoFactor", sigmoid_mul_add, "y = self.linear(x); return torch.sigmoid(y) + y",
     "after `sigmoid` in net.py:3 the rule wants mul, found `add` in net.py:3"},
    {"AlphaTwo", sigmoid_mul_add, "y = self.linear(x); return torch.add(torch.sigmoid(y) * self.factor, y, alpha=2)",
     "`add` in net.py:3 has an alpha, a rounding mode or another form than a plain `add`"},
    {"AlphaAtRunTime", sigmoid_mul_add,
     "y = self.linear(x); return torch.add(torch.sigmoid(y) * self.factor, y, alpha=self.count)",
     "`add` in net.py:3 has an alpha, a rounding mode or another form than a plain `add`"},
    {"Subtracted", sigmoid_mul_add, "y = self.linear(x); return torch.sigmoid(y) * self.factor - y",
     "after `mul` in net.py:3 the rule wants add, found `sub` in net.py:3"},
    {"SubtractedFrom", sigmoid_mul_add, "y = self.linear(x); return torch.rsub(torch.sigmoid(y) * self.factor, y)",
     "after `mul` in net.py:3 the rule wants add, found `sub` in net.py:3"},
    {"SigmoidOfAnother", add_swish_gn, "y = self.linear(x); return torch.sigmoid(self.other) * self.factor + y",
     "after `add` in net.py:3 the rule wants swish, found the method's result"},
    {"ResidualOfAnother", sigmoid_mul_add, "y = self.linear(x); return torch.sigmoid(y) * self.factor + self.other",
     "`add` in net.py:3 reads `other`, the rule wants the result of `linear` in net.py:2"},
    {"ResidualWithoutName", sigmoid_mul_add,
     "y = self.linear(x); return torch.sigmoid(y) * self.factor + (self.other + 1.0)",
     "`add` in net.py:3 reads the result of `add` in net.py:3, the rule wants the result of `linear` in net.py:2"},
    {"ResidualIsTheSigmoid", sigmoid_mul_add, "s = torch.sigmoid(self.linear(x)); return s * self.factor + s",
     "`add` in net.py:3 reads `s`, the rule wants the result of `linear` in net.py:2"},
    {"TimesTheLinear", swish_add_gn, "y = self.linear(x); return torch.sigmoid(y) * y + y",
     "after `add` in net.py:3 the rule wants group_norm, found the method's result"},
    {"TimesNotPlus", sigmoid_mul_add, "y = self.linear(x); return torch.sigmoid(y) * self.factor * y",
     "after `mul` in net.py:3 the rule wants add, found `mul` in net.py:3"},
    {"Tanh", add_swish_gn, "y = self.linear(x); return torch.tanh(y) * self.factor + y",
     "after `add` in net.py:3 the rule wants swish, found the method's result"},
    {"Divided", add_swish_gn, "y = self.linear(x); return torch.sigmoid(y) / self.factor + y",
     "after `add` in net.py:3 the rule wants swish, found the method's result"},
    {"SigmoidReturned", sigmoid_mul_add, "y = self.linear(x); s = torch.sigmoid(y); return s * self.factor + y, s",
     "the result of `sigmoid` in net.py:3 is also returned"},
    {"ProductReturned", sigmoid_mul_add, "y = self.linear(x); p = torch.sigmoid(y) * self.factor; return p + y, p",
     "the result of `mul` in net.py:3 is also returned"},
    {"LinearReturned", sigmoid_mul_add, "y = self.linear(x); return torch.sigmoid(y) * self.factor + y, y",
     "the result of `linear` in net.py:2 is also returned"},
    {"ThirdReader", sigmoid_mul_add, "y = self.linear(x); return torch.sigmoid(y) * self.factor + y + y.mean()",
     "the result of `linear` in net.py:2 is also read by `mean` in net.py:3"},
    {"IntoTheFactor", sigmoid_mul_add, "a = self.scale * 1.5; y = self.linear(x); return a.mul_(torch.sigmoid(y)) + y",
     "`mul_` in net.py:4 writes to another value than the rule's"},
    {"ComplexIntoTheResidual", sigmoid_mul_add, "y = self.linear(x); return y.add_(torch.sigmoid(y) * 2j)",
     "`add_` in net.py:3 writes in place what a number may have made complex"},
    {"SigmoidInPlace", sigmoid_mul_add, "y = self.linear(x); s = y.sigmoid_(); return s * self.factor + y",
     "`add` in net.py:4 reads `s`, the rule wants the result of `linear` in net.py:2"},
    {"IfBorder", sigmoid_mul_add,
     "y = self.linear(x); s = torch.sigmoid(y) * self.factor\nif x.size(0) > 3:\n    s = s + y\nreturn s",
     "after `mul` in net.py:3 the rule wants add, but `add` in net.py:5 stands in another branch or loop"},
    {"AllInABranch", sigmoid_mul_add,
     "y = self.linear(x)\nif x.size(0) > 3:\n    y = torch.sigmoid(y) * self.factor + y\nreturn y",
     "after `linear` in net.py:2 the rule wants sigmoid, but `sigmoid` in net.py:4 stands in another branch or loop"},
};
INSTANTIATE_TEST_SUITE_P(SigmoidMulAdd, NearMisses, testing::ValuesIn(sigmoid_mul_add_rows), name_of_row);

const NearMiss add_swish_gn_rows[] = {
    {"Number", add_swish_gn, "return self.group_norm(self.swish(self.linear(x) + 1.0))",
     "addend of `add` in net.py:2 is a number; the rule takes a tensor"},
    {"AlphaThree", add_swish_gn, "return self.group_norm(self.swish(torch.add(self.linear(x), self.scale, alpha=3)))",
     "`add` in net.py:2 has an alpha, a rounding mode or another form than a plain `add`"},
    {"Subtracted", none, "return self.group_norm(self.swish(self.linear(x) - self.scale))",
     "its result goes to `sub` in net.py:2, with which no rule begins"},
    {"Relu", add_swish_gn, "return self.group_norm(torch.relu(self.linear(x) + self.scale))",
     "after `add` in net.py:2 the rule wants swish, found `relu` in net.py:2"},
    {"Gelu", add_swish_gn, "return self.group_norm(torch.gelu(self.linear(x) + self.scale))",
     "after `add` in net.py:2 the rule wants swish, found `gelu` in net.py:2"},
    {"SigmoidAlone", add_swish_gn, "return self.group_norm(torch.sigmoid(self.linear(x) + self.scale))",
     "after `add` in net.py:2 the rule wants swish, found `sigmoid` in net.py:2"},
    {"SigmoidOfAnother", add_swish_gn,
     "y = self.linear(x) + self.scale; return self.group_norm(torch.sigmoid(self.other) * y)",
     "after `add` in net.py:2 the rule wants swish, found `mul` in net.py:3"},
    {"SigmoidTimesAnother", add_swish_gn,
     "y = self.linear(x) + self.scale; return self.group_norm(torch.sigmoid(y) * self.other)",
     "after `add` in net.py:2 the rule wants swish, found `sigmoid` in net.py:3"},
    {"GateBeforeTheSum", sigmoid_mul_add,
     "y = self.linear(x); return self.group_norm(torch.sigmoid(y) * (y + self.scale))",
     "after `mul` in net.py:3 the rule wants add, found `group_norm` in net.py:3"},
    {"SumReturned", add_swish_gn, "y = self.linear(x) + self.scale; return self.group_norm(self.swish(y)), y",
     "the result of `add` in net.py:2 is also returned"},
    {"SigmoidReturned", add_swish_gn,
     "y = self.linear(x) + self.scale; s = torch.sigmoid(y); return self.group_norm(y * s), s",
     "the result of `sigmoid` in net.py:3 is also returned"},
    {"SwishReturned", add_swish_gn, "y = self.swish(self.linear(x) + self.scale); return self.group_norm(y), y",
     "the result of `mul` in net.py:2 is also returned"},
    {"LayerNorm", add_swish_gn, "return torch.layer_norm(self.swish(self.linear(x) + self.scale), [12])",
     "after `mul` in net.py:2 the rule wants group_norm, found `layer_norm` in net.py:2"},
    {"BatchNorm", add_swish_gn, "return self.batch_norm(self.swish(self.linear(x) + self.scale))",
     "after `mul` in net.py:2 the rule wants group_norm, found `batch_norm` in net.py:2"},
    {"NoNorm", add_swish_gn, "return self.swish(self.linear(x) + self.scale)",
     "after `mul` in net.py:2 the rule wants group_norm, found the method's result"},
    {"AddedToItself", add_swish_gn, "y = self.linear(x); return self.group_norm(self.swish(y + y))",
     "`y`, an operand of the rule, is computed inside it by `linear` in net.py:2"},
};
INSTANTIATE_TEST_SUITE_P(AddSwishGn, NearMisses, testing::ValuesIn(add_swish_gn_rows), name_of_row);

const NearMiss swish_add_gn_rows[] = {
    {"Number", swish_add_gn, "return self.group_norm(self.swish(self.linear(x)) + 1)",
     "addend of `add` in net.py:2 is a number; the rule takes a tensor"},
    {"AlphaThree", swish_add_gn, "return self.group_norm(torch.add(self.swish(self.linear(x)), self.scale, alpha=3))",
     "`add` in net.py:2 has an alpha, a rounding mode or another form than a plain `add`"},
    {"SubtractedFrom", swish_add_gn, "return self.group_norm(self.scale - self.swish(self.linear(x)))",
     "after `mul` in net.py:2 the rule wants add, found `sub` in net.py:2"},
    {"Multiplied", swish_add_gn, "return self.group_norm(torch.silu(self.linear(x)) * self.scale)",
     "after `silu` in net.py:2 the rule wants add, found `mul` in net.py:2"},
    {"AlphaOtherWay", swish_add_gn,
     "return self.group_norm(torch.add(self.scale, self.swish(self.linear(x)), alpha=2))",
     "`add` in net.py:2 has an alpha, a rounding mode or another form than a plain `add`"},
    {"NoSum", swish_add_gn, "return self.group_norm(torch.silu(self.linear(x)))",
     "after `silu` in net.py:2 the rule wants add, found `group_norm` in net.py:2"},
    {"SwishReturned", swish_add_gn, "y = torch.silu(self.linear(x)); return self.group_norm(y + self.scale), y",
     "the result of `silu` in net.py:2 is also returned"},
    {"SigmoidReturned", swish_add_gn,
     "y = self.linear(x); s = torch.sigmoid(y); return self.group_norm(s * y + self.scale), s",
     "the result of `sigmoid` in net.py:3 is also returned"},
    {"LinearReturned", swish_add_gn, "y = self.linear(x); return self.group_norm(self.swish(y) + self.scale), y",
     "the result of `linear` in net.py:2 is also returned"},
    {"SumReturned", swish_add_gn, "y = self.swish(self.linear(x)) + self.scale; return self.group_norm(y), y",
     "the result of `add` in net.py:2 is also returned"},
    {"BatchNorm", swish_add_gn, "return self.batch_norm(self.swish(self.linear(x)) + self.scale)",
     "after `add` in net.py:2 the rule wants group_norm, found `batch_norm` in net.py:2"},
    {"TwoSums", swish_add_gn, "return self.group_norm(self.swish(self.linear(x)) + self.scale + self.other)",
     "after `add` in net.py:2 the rule wants group_norm, found `add` in net.py:2"},
    {"ResidualSum", swish_add_gn, "y = self.linear(x); return self.group_norm(self.swish(y) + y)",
     "`y`, an operand of the rule, is computed inside it by `linear` in net.py:2"},
    {"IntoTheAddend", swish_add_gn,
     "a = self.scale + x[0, 0]; a.add_(torch.silu(self.linear(x[0]))); return self.group_norm(a.unsqueeze(0))",
     "`add_` in net.py:3 writes to another value than the rule's"},
    {"LoopBorder", swish_add_gn,
     "y = torch.silu(self.linear(x))\nfor i in range(2):\n    y = y + self.scale\nreturn self.group_norm(y)",
     "after `silu` in net.py:2 the rule wants add, found the loop in net.py:3"},
    {"SwishInABranch", swish_add_gn,
     "y = self.linear(x)\nif x.size(0) > 3:\n    y = self.swish(y)\nreturn self.group_norm(y + self.scale)",
     "after `linear` in net.py:2 the rule wants swish, but `sigmoid` in net.py:4 stands in another branch or loop"},
};
INSTANTIATE_TEST_SUITE_P(SwishAddGn, NearMisses, testing::ValuesIn(swish_add_gn_rows), name_of_row);

const NearMiss bn_add_div_swish_rows[] = {
    {"NumberAddend", bn_add_div_swish, "return self.swish((self.batch_norm(self.linear(x)) + 1.0) / self.factor)",
     "addend of `add` in net.py:2 is a number; the rule takes a tensor"},
    {"Floor", bn_add_div_swish,
     "y = self.batch_norm(self.linear(x)) + self.one; return self.swish(torch.div(y, self.factor, "
     "rounding_mode=\"floor\"))",
     "`div` in net.py:3 has an alpha, a rounding mode or another form than a plain `div`"},
    {"FloorDivide", bn_add_div_swish, "return self.swish((self.batch_norm(self.linear(x)) + self.one) // self.factor)",
     "after `add` in net.py:2 the rule wants div, found `floor_divide` in net.py:2"},
    {"CommutedDiv", bn_add_div_swish, "return self.swish(self.scale / (self.batch_norm(self.linear(x)) + self.one))",
     "`div` in net.py:2 has its operands in the other order"},
    {"Reciprocal", bn_add_div_swish, "return self.swish(self.factor / (self.batch_norm(self.linear(x)) + self.one))",
     "after `add` in net.py:2 the rule wants div, found `reciprocal` in net.py:2"},
    {"Multiplied", bn_add_div_swish, "return self.swish((self.batch_norm(self.linear(x)) + self.one) * self.factor)",
     "after `add` in net.py:2 the rule wants div, found `mul` in net.py:2"},
    {"Subtracted", bn_add_div_swish, "return self.swish((self.batch_norm(self.linear(x)) - self.one) / self.factor)",
     "after `batch_norm` in net.py:2 the rule wants add, found `sub` in net.py:2"},
    {"AlphaTwo", bn_add_div_swish,
     "return self.swish(torch.add(self.batch_norm(self.linear(x)), self.one, alpha=2) / self.factor)",
     "`add` in net.py:2 has an alpha, a rounding mode or another form than a plain `add`"},
    {"SigmoidAlone", bn_add_div_swish,
     "return torch.sigmoid((self.batch_norm(self.linear(x)) + self.one) / self.factor)",
     "after `div` in net.py:2 the rule wants swish, found `sigmoid` in net.py:2"},
    {"NormReturned", bn_add_div_swish,
     "y = self.batch_norm(self.linear(x)); return self.swish((y + self.one) / self.factor), y",
     "the result of `batch_norm` in net.py:2 is also returned"},
    {"SumReturned", bn_add_div_swish,
     "y = self.batch_norm(self.linear(x)) + self.one; return self.swish(y / self.factor), y",
     "the result of `add` in net.py:2 is also returned"},
    {"QuotientReturned", bn_add_div_swish,
     "y = (self.batch_norm(self.linear(x)) + self.one) / self.factor; return self.swish(y), y",
     "the result of `div` in net.py:2 is also returned"},
    {"GroupNorm", gn_swish_mul_swish, "return self.swish((self.group_norm(self.linear(x)) + self.one) / self.factor)",
     "after `group_norm` in net.py:2 the rule wants swish, found `add` in net.py:2"},
    {"NormOfWhatIsWritten", bn_add_div_swish,
     "y = self.batch_norm(self.linear(x)); torch.neg(y, out=y); return self.swish((y + self.one) / self.factor)",
     "`neg` in net.py:3 writes to what `add` in net.py:4 reads"},
    {"NormAlone", bn_add_div_swish, "return self.batch_norm(self.linear(x))",
     "after `batch_norm` in net.py:2 the rule wants add, found the method's result"},
    {"IfBorder", bn_add_div_swish,
     "y = self.batch_norm(self.linear(x))\nif self.training:\n    y = y + self.one\nreturn self.swish(y / self.factor)",
     "after `batch_norm` in net.py:2 the rule wants add, but `add` in net.py:4 stands in another branch or loop"},
};
INSTANTIATE_TEST_SUITE_P(BnAddDivSwish, NearMisses, testing::ValuesIn(bn_add_div_swish_rows), name_of_row);

const NearMiss gn_swish_mul_swish_rows[] = {
    {"Number", gn_swish_mul_swish, "return self.swish(self.swish(self.group_norm(self.linear(x))) * 2.0)",
     "scale of `mul` in net.py:2 is a number; the rule takes a tensor"},
    {"OneSwish", gn_swish_mul_swish, "return self.swish(self.group_norm(self.linear(x)))",
     "after `mul` in net.py:2 the rule wants mul, found the method's result"},
    {"NoFirstSwish", gn_swish_mul_swish, "return self.swish(self.group_norm(self.linear(x)) * self.scale)",
     "after `group_norm` in net.py:2 the rule wants swish, found `mul` in net.py:2"},
    {"NoSecondSwish", gn_swish_mul_swish, "return self.swish(self.group_norm(self.linear(x))) * self.scale",
     "after `mul` in net.py:2 the rule wants swish, found the method's result"},
    {"Added", gn_swish_mul_swish, "return self.swish(self.swish(self.group_norm(self.linear(x))) + self.scale)",
     "after `mul` in net.py:2 the rule wants mul, found `add` in net.py:2"},
    {"Divided", gn_swish_mul_swish, "return self.swish(torch.silu(self.group_norm(self.linear(x))) / self.scale)",
     "after `silu` in net.py:2 the rule wants mul, found `div` in net.py:2"},
    {"NormReturned", gn_swish_mul_swish,
     "y = self.group_norm(self.linear(x)); return self.swish(self.swish(y) * self.scale), y",
     "the result of `group_norm` in net.py:2 is also returned"},
    {"FirstSwishReturned", gn_swish_mul_swish,
     "y = self.swish(self.group_norm(self.linear(x))); return self.swish(y * self.scale), y",
     "the result of `mul` in net.py:2 is also returned"},
    {"ProductReturned", gn_swish_mul_swish,
     "y = self.swish(self.group_norm(self.linear(x))) * self.scale; return self.swish(y), y",
     "the result of `mul` in net.py:2 is also returned"},
    {"ScaledByItself", gn_swish_mul_swish, "y = torch.silu(self.group_norm(self.linear(x))); return self.swish(y * y)",
     "`y`, an operand of the rule, is computed inside it by `silu` in net.py:2"},
    {"SecondSigmoidOfAnother", gn_swish_mul_swish,
     "y = torch.silu(self.group_norm(self.linear(x))); z = y * self.scale; return z * torch.sigmoid(self.other)",
     "after `mul` in net.py:3 the rule wants swish, found `mul` in net.py:4"},
    {"BatchNorm", bn_add_div_swish, "return self.swish(self.swish(self.batch_norm(self.linear(x))) * self.scale)",
     "after `batch_norm` in net.py:2 the rule wants add, found `sigmoid` in net.py:2"},
    {"Relu", gn_swish_mul_swish, "return torch.relu(self.swish(self.group_norm(self.linear(x))) * self.scale)",
     "after `mul` in net.py:2 the rule wants swish, found `relu` in net.py:2"},
    {"IfBorder", gn_swish_mul_swish,
     "y = torch.silu(self.group_norm(self.linear(x)))\nif self.training:\n    y = y * self.scale\nreturn self.swish(y)",
     "after `silu` in net.py:2 the rule wants mul, but `mul` in net.py:4 stands in another branch or loop"},
};
INSTANTIATE_TEST_SUITE_P(GnSwishMulSwish, NearMisses, testing::ValuesIn(gn_swish_mul_swish_rows), name_of_row);

// What the module multiplies by and no rule takes is a site; other products are none.
const NearMiss others[] = {
    {"AsItIs", none, "return self.batch_norm(x @ self.square * self.scale)",
     "`matmul` in net.py:2 multiplies by `square`, where a linear has the transpose of its weight, as in x @ w.t()"},
    {"Slice", none, "return self.batch_norm(torch.mm(x, self.square[:5]) * self.scale)",
     "`mm` in net.py:2 multiplies by the result of `slice` in net.py:2, where a linear has the transpose of its "
     "weight, "
     "as in x @ w.t()"},
    {"Sum", none, "return self.batch_norm(torch.addmm(self.b, x, self.square[:5]) * self.scale)",
     "`addmm` in net.py:2 multiplies by the result of `slice` in net.py:2, where a linear has the transpose of its "
     "weight, as in x @ w.t()"},
    {"NoTranspose", none, "return self.batch_norm(x @ self.w.transpose(0, 0) * self.scale)",
     "`matmul` in net.py:2 multiplies by the result of `transpose` in net.py:2, where a linear has the transpose of "
     "its "
     "weight, as in x @ w.t()"},
    {"Contiguous", none, "return self.batch_norm(x @ self.w.t().contiguous() * self.scale)",
     "`matmul` in net.py:2 multiplies by the result of `contiguous` in net.py:2, where a linear has the transpose of "
     "its weight, as in x @ w.t()"},
    {"Product_out", none, "return self.batch_norm(torch.matmul(x, self.w.t(), out=self.other) * self.scale)",
     "`matmul` in net.py:2 writes its result to a tensor that it is given"},
    {"Sum_out", none, "return self.batch_norm(torch.addmm(self.b, x, self.w.t(), out=self.other) * self.scale)",
     "`addmm` in net.py:2 writes its result to a tensor that it is given"},
    {"Product_dtype", none, "return self.batch_norm(torch.mm(x, self.w.t(), out_dtype=7) * self.scale)",
     "`mm` in net.py:2 is told the dtype of its result"},
    {"Sum_dtype", none, "return self.batch_norm(torch.addmm(self.b, x, self.w.t(), out_dtype=7) * self.scale)",
     "`addmm` in net.py:2 is told the dtype of its result"},
    {"Sum_in_place", none, "return self.batch_norm(self.other.addmm_(x, self.w.t()) * self.scale)",
     "`addmm_` in net.py:2 writes its result to a tensor that it is given"},
};
INSTANTIATE_TEST_SUITE_P(OtherLinears, NearMisses, testing::ValuesIn(others), name_of_row);

TEST(Linears, OtherProducts) {
  for (const char* body : {"return self.batch_norm(x @ torch.relu(x) * self.scale)",
                           "return self.batch_norm(torch.addmm(self.b, x, x * self.w) * self.scale)",
                           "return self.batch_norm(x @ (self.w + x) * self.scale)",
                           "return self.batch_norm(x @ torch.mul(self.w, x) * self.scale)"})
    EXPECT_TRUE(fuse_graph(graph_of(net(body))).empty()) << body;
}

// x @ w.t() + b is one linear, and also x @ w.t() with something added to it.
TEST(Linears, LongestFirst) {
  const auto graph = graph_of(net("return x @ self.w.t() + self.b"));
  for (Node* node : graph->nodes()) {
    const auto found = linears_at(node);
    if (!is_aten(node, "matmul")) {
      EXPECT_TRUE(found.empty());
      continue;
    }
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].nodes.size(), 2u);
    EXPECT_EQ(describe(found[0].weight), "`w`");
    EXPECT_EQ(describe(found[0].bias), "`b`");
    EXPECT_EQ(found[1].nodes.size(), 1u);
    EXPECT_EQ(found[1].bias, nullptr);
  }
}

// Where nobody has told the readers of what is written in place, as the pass does before it matches.
TEST(Matches, NothingThatWasOverwritten) {
  const auto graph = parse(std::string(head) + R"(
  %y : Tensor = aten::linear(%x, %w, %b)
  %g : Tensor = aten::sigmoid_(%y)
  %p : Tensor = aten::mul(%g, %s)
  %r : Tensor = aten::add(%p, %y, %one)
  return (%r))");
  const auto found = match(*find_chain(sigmoid_mul_add), linears_at(find(graph, "aten::linear")).at(0));
  ASSERT_TRUE(std::holds_alternative<Miss>(found));
  EXPECT_EQ(std::get<Miss>(found).reason, "`sigmoid_` overwrites what `add` reads");
}

}  // namespace
}  // namespace tailor::test
