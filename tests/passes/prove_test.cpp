// What stands between the parts of a chain: what forbids to fuse, with the reason that the report gives; and what does
// not, with eager's values, errors and state.
#include "passes/prove.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "ir.h"

namespace tailor::test {
namespace {

struct Tail {
  const char* name;
  const char* rule;
  const char* statement;  // after `y = self.linear(…)`
};
const Tail tails[] = {
    {"MulBn", "linear_mul_batch_norm", "return self.batch_norm(y * self.scale)"},
    {"SigmoidMulAdd", "linear_sigmoid_mul_add", "return torch.sigmoid(y) * self.factor + y"},
    {"AddSwishGn", "linear_add_swish_group_norm", "return self.group_norm(self.swish(y + self.scale))"},
    {"SwishAddGn", "linear_swish_add_group_norm", "return self.group_norm(self.swish(y) + self.scale)"},
    {"BnAddDivSwish", "linear_batch_norm_add_div_swish",
     "return self.swish((self.batch_norm(y) + self.one) / self.factor)"},
    {"GnSwishMulSwish", "linear_group_norm_swish_mul_swish",
     "return self.swish(self.swish(self.group_norm(y)) * self.scale)"},
};

struct Disturbance {
  const char* name;
  const char* head;  // with the linear
  const char* reason;
};
const Disturbance disturbances[] = {
    {"WritesToWeight", "y = self.linear(x); self.w.mul_(2.0)",
     "`mul_` in net.py:3 writes to `w`, which the chain has read"},
    {"WritesToBias", "y = self.linear(x); self.b.zero_()",
     "`zero_` in net.py:3 writes to `b`, which the chain has read"},
    {"WritesToWeightOut", "y = self.linear(x); torch.add(self.w2, self.w2, alpha=1, out=self.w)",
     "`add` in net.py:3 writes to `w`, which the chain has read"},
    {"WritesToInput", "v = x + 1.0; y = self.linear(v); v.add_(1.0)",
     "`add_` in net.py:4 writes to `v`, which the chain has read"},
    {"WritesThroughView", "y = self.linear(x); self.w[0].zero_()",
     "`zero_` in net.py:3 writes to `w`, which the chain has read"},
    {"WritesThroughViewMadeBefore", "v = x + 1.0; r = v[0]; y = self.linear(v); r.zero_()",
     "`zero_` in net.py:5 writes to `v`, which the chain has read"},
    {"WritesToWhatTheInputIsAViewOf", "v = x + 1.0; y = self.linear(v.view(v.size())); v.t().zero_()",
     "`zero_` in net.py:4 writes to the result of `view` in net.py:3, which the chain has read"},
    {"WritesThroughList", "y = self.linear(x); all = [self.w, self.b]; all[0].zero_()",
     "`zero_` in net.py:4 may write to an operand of the chain"},
    {"WritesToList", "y = self.linear(x); torch._foreach_mul_(self.all, 2.0)",
     "`_foreach_mul_` in net.py:3 may write to an operand of the chain"},
    {"WritesToListOut", "y = self.linear(x); torch.unbind_copy(self.square[:2], 0, out=self.all)",
     "`unbind_copy` in net.py:3 may write to an operand of the chain"},
    {"WritesInBranch", "y = self.linear(x)\nif self.training:\n    self.w.mul_(2.0)",
     "`mul_` in net.py:4 writes to `w`, which the chain has read"},
    {"WritesInLoop", "y = self.linear(x)\nfor i in range(3):\n    self.b.mul_(0.5)",
     "`mul_` in net.py:4 writes to `b`, which the chain has read"},
    {"EndsAMode", "with no_grad():\n    y = self.linear(x)",
     "the end of a `with` block stands inside the chain and changes the mode in which it runs"},
    {"LeavesAnotherMode", "y = self.linear(x); torch.set_grad_enabled(False)",
     "`set_grad_enabled` in net.py:3 leaves another mode behind, and beside an op torch might lose gradients; `with "
     "torch.no_grad():` leaves none"},
    {"TransposedInAnotherMode", "with no_grad():\n    wt = self.w.t()\ny = x @ wt",
     "`t` in net.py:3, the weight's transpose, stands apart from the product"},
    {"TransposedAgainSince", "v = self.w.clone(); wt = v.t(); v.t_(); y = x @ wt",
     "`t` in net.py:3, the weight's transpose, stands apart from the product"},
    {"WritesToTheTranspose", "wt = self.w.t(); y = x @ wt; wt.mul_(2.0)",
     "`mul_` in net.py:4 writes to the weight's transpose, which the chain has read"},
    {"TransposedBeforeWhatIsNoticed", "wt = self.w.t(); self.other.add_(1.0); y = torch.addmm(self.b, x, wt)",
     "`t` in net.py:2, the weight's transpose, stands apart from the product"},
    {"RunsABackward", "s = self.other.clone().requires_grad_(True); y = self.linear(x); s.sum().backward()",
     "`backward` in net.py:4 stands inside the chain and may do anything"},
    {"RunsHooks",
     "s = self.other.clone().requires_grad_(True); y = self.linear(x); self.count = len(torch.grad([s.sum()], [s]))",
     "`grad` in net.py:4 stands inside the chain and may do anything"},
    {"SetsATensor", "y = self.linear(x); self.other.set_(self.b); self.other.add_(1.0)",
     "`set_` in net.py:3 stands inside the chain and gives a tensor other memory"},
    {"SetsData", "y = self.linear(x); self.other.set_data(self.b); self.other.add_(1.0)",
     "`set_data` in net.py:3 stands inside the chain and gives a tensor other memory"},
    {"Resizes", "y = self.linear(x); self.other.resize_([12])",
     "`resize_` in net.py:3 stands inside the chain and gives a tensor other memory"},
    {"OverwritesTheLinear", "y = self.linear(x); y.relu_()", ""},
    {"ReadsTheLinear", "y = self.linear(x); self.other = y.sum()", ""},
};

std::vector<NearMiss> every_combination() {
  std::vector<NearMiss> rows;
  for (const Tail& tail : tails)
    for (const Disturbance& d : disturbances) {
      NearMiss row{std::string(tail.name) + d.name, tail.rule, std::string(d.head) + "\n" + tail.statement, d.reason};
      if (std::string(d.name) == "OverwritesTheLinear") {
        row.rule = "";
        row.reason = "its result goes to `relu_` in net.py:3, with which no rule begins";
      }
      if (std::string(d.name) == "ReadsTheLinear")
        row.reason = "the result of `linear` in net.py:2 is also read by `sum` in net.py:3";
      rows.push_back(row);
    }
  return rows;
}

class Obstacles : public testing::TestWithParam<NearMiss> {};
TEST_P(Obstacles, StayAndSayWhy) { expect_stays(GetParam()); }
std::string name_of_obstacle(const testing::TestParamInfo<NearMiss>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(EveryRule, Obstacles, testing::ValuesIn(every_combination()), name_of_obstacle);

const NearMiss rows[] = {
    {"WritesToScale", "linear_mul_batch_norm",
     "y = self.linear(x) * self.scale; self.scale.add_(1.0); return self.batch_norm(y)",
     "`add_` in net.py:3 writes to `scale`, which the chain has read"},
    {"WritesToAddend", "linear_add_swish_group_norm",
     "y = self.linear(x) + self.scale; self.scale.add_(1.0); return self.group_norm(self.swish(y))",
     "`add_` in net.py:3 writes to `scale`, which the chain has read"},
    {"WritesToAliasOfScale", "linear_mul_batch_norm",
     "s = self.scale.view(-1); y = self.linear(x) * s; s[0] = 1.0; return self.batch_norm(y)",
     "`copy_` in net.py:4 writes to `s`, which the chain has read"},
    {"WritesToWhatScaleIsAViewOf", "linear_mul_batch_norm",
     "y = self.linear(x) * self.square[0]; self.square.add_(1.0); return self.batch_norm(y)",
     "`add_` in net.py:3 writes to the result of `select` in net.py:2, which the chain has read"},
    {"WritesToAnotherViewOfTheScale", "linear_mul_batch_norm",
     "a = self.square[0]; b = self.square.t(); y = self.linear(x) * a; b.add_(1.0); return self.batch_norm(y)",
     "`add_` in net.py:5 writes to `a`, which the chain has read"},
    {"WritesToAPartThatIsTheScale", "linear_mul_batch_norm",
     "s = self.square[0]; y = self.linear(x) * s; s.add_(1.0); return self.batch_norm(y)",
     "`add_` in net.py:4 writes to `s`, which the chain has read"},
    {"WritesToAViewOfAPart", "linear_mul_batch_norm",
     "s = self.square[0]; y = self.linear(x) * s; s.view(1, 12).add_(1.0); return self.batch_norm(y)",
     "`add_` in net.py:4 writes to `s`, which the chain has read"},
    {"WritesToAPartOfAPart", "linear_mul_batch_norm",
     "s = self.square[0]; y = self.linear(x) * s; s[0] = 1.0; return self.batch_norm(y)",
     "`copy_` in net.py:4 writes to `s`, which the chain has read"},
    {"WritesAsItsNameSays", "linear_mul_batch_norm",
     "y = self.linear(x); z = torch._no_grad_embedding_renorm_(self.w, torch.arange(3), 0.1, 2.0); return "
     "self.batch_norm(y * self.scale) + z.sum()",
     "`_no_grad_embedding_renorm_` in net.py:3 writes to `w`, which the chain has read"},
    {"WritesToPartOfAList", "linear_mul_batch_norm",
     "y = self.linear(x); some = self.all[0:1]; torch._foreach_mul_(some, 2.0); return self.batch_norm(y * self.scale) "
     "+ "
     "some[0].sum()",
     "`_foreach_mul_` in net.py:4 may write to an operand of the chain"},
    {"WritesToWhatALoopCarries", "linear_mul_batch_norm",
     "t = self.scale.view(-1)\ny = self.linear(x) * self.scale\nfor i in range(2):\n    t += 1.5\nreturn "
     "self.batch_norm(y) + t.sum()",
     "`add_` in net.py:5 may write to an operand of the chain"},
    {"WritesToWhatMayBeTheInput", "linear_mul_batch_norm",
     "y = self.linear(x); t = torch.dropout(x, 0.5, False); t.add_(1.0); return self.batch_norm(y * self.scale) + "
     "t.sum()",
     "`add_` in net.py:4 may write to an operand of the chain"},
    {"WritesToFactor", "linear_sigmoid_mul_add",
     "y = self.linear(x); s = torch.sigmoid(y) * self.one; self.one.add_(1.0); return s + y",
     "`add_` in net.py:4 writes to `one`, which the chain has read"},
    {"WorksAfterBatchNorm", "linear_batch_norm_add_div_swish",
     "y = self.batch_norm(self.linear(x)); self.other = torch.relu(x); return self.swish((y + self.one) / self.factor)",
     "`relu` in net.py:3 stands between the norm and `add` in net.py:4, so that the norm's statistics or error would "
     "come too late"},
    {"RaisesAfterBatchNorm", "linear_batch_norm_add_div_swish",
     "y = self.batch_norm(self.linear(x)) + self.one\nif self.training:\n    raise Exception(\"no\")\nreturn "
     "self.swish(y "
     "/ self.factor)",
     "the `if` in net.py:3 stands between the norm and `div` in net.py:5, so that the norm's statistics or error would "
     "come "
     "too late"},
    {"ReadsStatisticsAfterBatchNorm", "linear_batch_norm_add_div_swish",
     "y = self.batch_norm(self.linear(x)); m = self.mean + 1.0; return self.swish((y + m) / self.factor)",
     "`add` in net.py:3 stands between the norm and `add` in net.py:4, so that the norm's statistics or error would "
     "come "
     "too late"},
    {"WorksAfterGroupNorm", "linear_group_norm_swish_mul_swish",
     "y = self.silu(self.group_norm(self.linear(x))); self.other = torch.relu(x); return self.swish(y * self.scale)",
     "`relu` in net.py:3 stands between the norm and `mul` in net.py:4, so that the norm's statistics or error would "
     "come too late"},
    {"WorksBeforeBias", "linear_mul_batch_norm",
     "y = x @ self.w.t(); self.other = torch.relu(x); y = y + self.b; return self.batch_norm(y * self.scale)",
     "`relu` in net.py:3 stands between the product and its bias"},
    {"CallsWithEffect", "linear_mul_batch_norm",
     "y = self.linear(x); all = [self.w]; all.append(self.w2); all[0].zero_(); return self.batch_norm(y * self.scale)",
     "`zero_` in net.py:5 may write to an operand of the chain"},
};
INSTANTIATE_TEST_SUITE_P(OneRule, Obstacles, testing::ValuesIn(rows), name_of_obstacle);

// What may stand inside a chain, and the values, errors and state that it must leave.
class Harmless : public testing::TestWithParam<const char*> {};

TEST_P(Harmless, FusesAndComputesTheSame) {
  for (const Tail& tail : tails) {
    const std::string body = std::string(GetParam()) + "\n" + tail.statement;
    const Module module = net(body);
    const auto graph = graph_of(module);
    const auto sites = fuse_graph(graph);
    ASSERT_FALSE(sites.empty());
    EXPECT_TRUE(sites[0].fused) << body << ": " << sites[0].reason;
    EXPECT_EQ(sites[0].rule, tail.rule);
    EXPECT_EQ(difference(graph_of(module), graph, module), "") << body;

    std::vector<Site> undone;
    ASSERT_TRUE(unfuse_graph(graph, undone, "forward"));
    EXPECT_EQ(graph->toString(false).find("tailor::"), std::string::npos);
    EXPECT_EQ(difference(graph_of(module), graph, module), "") << body << ", unfused";
  }
}

INSTANTIATE_TEST_SUITE_P(
    EveryRule, Harmless,
    testing::Values(
        "y = self.linear(x); self.tracked.add_(1)",                         // a counter, before the norm
        "y = self.linear(x); self.other.mul_(2.0)",                         // a buffer that is not read
        "y = self.linear(x); self.mean.mul_(0.5)",                          // one that is read afterwards
        "y = self.linear(x); self.gamma.add_(1.0)",                         //
        "y = self.linear(x)\nif self.training:\n    self.tracked.add_(1)",  // in a branch
        "y = self.linear(x)\nfor i in range(3):\n    self.other.add_(1.0)", "y = self.linear(x); assert x.dim() < 9",
        "y = self.linear(x); n = y.size(0) + y.dim() + len(y)",
        "y = self.linear(x)\nif y.dim() != 2:\n    raise Exception(\"no\")",
        "y = self.linear(x)\nif y.size(0) > 3:\n    self.tracked.add_(y.size(1))",
        "y = self.linear(x); self.count = int(torch.is_grad_enabled() and not torch.is_autocast_enabled())",
        "y = self.linear(x); self.w = self.w2",   // the chain has read the old one
        "y = self.linear(x); self.other += 1.0",  // assigns what is there
        "t = torch.get_autocast_dtype('cpu'); y = self.linear(x)",
        "y = self.linear(x); t = torch.get_autocast_dtype('cpu'); self.count = int(torch.is_autocast_cpu_enabled())",
        "y = self.linear(x); kept = self.w.sum(); self.other = self.other + kept",
        "y = self.linear(x); self.other.mul_(0.9).add_(0.1)",  // what is written to is a view of what was there
        "y = self.linear(x); self.other[0] = 2.0",
        "v = x + 1.0; y = self.linear(v[:3]); v[3:].mul_(2.0)",  // another part, or not: seen at run time
        "v = x + 1.0; y = self.linear(v.contiguous()); v.t().reshape(-1).add_(1.0)",  // copies, or not
        "y = self.linear(x); r = self.other.view(-1); r.mul_(0.9); r[1:].detach().zero_()",
        "y = self.linear(x); z = torch.layer_norm(x, [5]); z.add_(1.0); self.other = self.other + z.sum()",  // made of other ops, and new
        "v = x + 1.0; y = self.linear(v); z = torch.silu(v)"));

// In the executor's graphs an operand is read behind a profile node.
TEST(Profiles, DoNotHideWhatIsWritten) {
  const auto graph = parse(R"(graph(%x : Tensor, %w : Tensor, %b : Tensor, %f : float):
  %one : int = prim::Constant[value=1]()
  %w.1 : Tensor = prim::profile(%w)
  %y : Tensor = aten::linear(%x, %w.1, %b)
  %g : Tensor = aten::sigmoid(%y)
  %p : Tensor = aten::mul(%g, %f)
  %v : Tensor = aten::add_(%w, %one, %one)
  %r : Tensor = aten::add(%p, %y, %one)
  return (%r))");
  const auto sites = fuse_graph(graph);
  ASSERT_EQ(sites.size(), 1u);
  EXPECT_EQ(sites[0].reason, "`add_` writes to `w`, which the chain has read");
}

// What only the storages can tell. The modules are not copied: a copy would undo the sharing.
void expect_same_when_shared(const std::string& body, const std::function<void(Module&)>& share) {
  Module plain = net(body);
  Module fused = net(body);
  share(plain);
  share(fused);
  const auto graph = graph_of(fused);
  fuse_graph(graph);
  EXPECT_TRUE(has(*graph, "tailor::unwritten")) << body;
  const auto x = at::randn({7, 5}, at::kDouble);
  EXPECT_EQ(difference(run_on(plain, graph_of(plain), {x.clone()}), run_on(fused, graph, {x.clone()})), "") << body;
}

TEST(Unwritten, SharedStorageOfEveryOperand) {
  for (const Tail& tail : tails)
    for (const char* operand : {"w", "b"})
      expect_same_when_shared(
          std::string("y = self.linear(x); self.other.add_(3.0); ") + tail.statement,
          [&](Module& m) { m.setattr("other", m.attr(operand).toTensor().view(-1).slice(0, 0, 12)); });
  for (const char* write : {"self.other.mul_(0.9).add_(3.0)", "self.other[1] = 2.0", "self.other.view(-1).mul_(2.0)"})
    for (const char* operand : {"w", "b"})
      expect_same_when_shared(std::string("y = self.linear(x); ") + write + "; " + tails[0].statement, [&](Module& m) {
        m.setattr("other", m.attr(operand).toTensor().view(-1).slice(0, 0, 12));
      });
  for (const char* operand : {"scale", "w", "b"})
    expect_same_when_shared(
        "y = self.linear(x) * self.scale; self.other.add_(3.0); return self.batch_norm(y)",
        [&](Module& m) { m.setattr("other", m.attr(operand).toTensor().view(-1).slice(0, 0, 12)); });
}

TEST(Unwritten, SharedStorageWithEitherOfTwoWrites) {
  for (const char* writes :
       {"self.other.add_(3.0); self.tracked.add_(1); ", "self.tracked.add_(1); self.other.add_(3.0); "})
    expect_same_when_shared(std::string("y = self.linear(x) * self.scale; ") + writes + "return self.batch_norm(y)",
                            [&](Module& m) { m.setattr("other", m.attr("scale").toTensor().view(-1)); });
}

TEST(Unwritten, TheCounterIsAViewOfAnOperand) {
  expect_same_when_shared("return self.bn(self.linear(x) * self.scale)", [](Module& m) {
    auto scale = m.attr("scale").toTensor();
    scale[0] = 0.0;
    m.setattr("tracked", scale.view(at::kInt)[1]);  // the high half of a double: 1 << 32 times the smallest
    m.attr("tracked").toTensor().fill_(1 << 30);
  });
}

TEST(Unwritten, SharedStorageWhereTheConditionHolds) {
  for (const char* condition : {"x.dim() == 2", "x.dim() == 3", "self.training"})
    expect_same_when_shared(std::string("two = ") + condition +
                                "; y = self.linear(x) * self.scale\nif two:\n    self.other.add_(3.0)\n"
                                "if self.training:\n    self.other.mul_(0.5)\nreturn self.batch_norm(y)",
                            [](Module& m) { m.setattr("other", m.attr("scale").toTensor().view(-1)); });
}

TEST(Unwritten, TheInputSharesStorage) {
  const std::string body = "y = self.linear(x); self.other.add_(3.0); return self.batch_norm(y * self.scale)";
  Module plain = net(body);
  Module fused = net(body);
  const auto graph = graph_of(fused);
  fuse_graph(graph);
  const auto run_shared = [](Module& m, const std::shared_ptr<Graph>& g) {
    const auto x = m.attr("other").toTensor().slice(0, 0, 10).view({2, 5});
    return run_on(m, g, {x});
  };
  EXPECT_EQ(difference(run_shared(plain, graph_of(plain)), run_shared(fused, graph)), "");
}

TEST(Check, RaisesBeforeTheCounterCounts) {
  const Module module = net("return self.bn(self.linear(x) * self.scale)");
  const auto graph = graph_of(module);
  fuse_graph(graph);
  const auto tracked_after = [&](at::IntArrayRef shape, const char* error) {
    const Outcome outcome = run(graph, module, {at::randn(shape, at::kDouble)});
    EXPECT_NE(outcome.error.find(error), std::string::npos) << outcome.error;
    for (const auto& [name, value] : outcome.state)
      if (name == "tracked") return value.item<std::int64_t>();
    return std::int64_t{-1};
  };
  EXPECT_EQ(tracked_after({7, 6}, "mat1 and mat2 shapes cannot be multiplied (7x6 and 5x12)"), 0);
  EXPECT_EQ(tracked_after({2, 3, 12, 5}, "expected 2D or 3D input (got 4D input)"), 0);
  EXPECT_EQ(tracked_after({7, 5}, ""), 1);
}

TEST(Check, RaisesAsTheAuthorSpelledIt) {
  for (const char* product :
       {"torch.addmm(self.b, x, self.w.t())", "torch.mm(x, self.w.t())", "(x @ self.w.t() + self.b)"}) {
    const Module module = net(std::string("return self.bn(") + product + " * self.scale)");
    const auto graph = graph_of(module);
    fuse_graph(graph);
    EXPECT_TRUE(has(*graph, "tailor::check")) << product;
    EXPECT_EQ(difference(graph_of(module), graph, module), "") << product;
  }
}

// A shape that is read after the norm: where a later step raises, the norm has written its statistics by then.
TEST(Check, RaisesNothingAfterTheNorm) {
  for (const char* body :
       {"y = self.batch_norm(self.linear(x)) + self.scale; n = y.dim(); return self.swish(y / self.factor), n",
        "y = self.batch_norm(self.linear(x)).add_(self.scale); n = len(y); return self.swish(y / self.factor), n",
        "y = (self.bn(self.linear(x)) + self.scale) / self.one; n = y.numel(); return self.swish(y), n",
        "y = self.swish(self.gn(self.linear(x))) * self.scale; n = y.dim(); return self.swish(y), n"}) {
    const Module module = net(body);
    const auto graph = graph_of(module);
    EXPECT_TRUE(fuse_graph(graph)[0].fused) << body;
    EXPECT_TRUE(has(*graph, "tailor::check")) << body;
    EXPECT_EQ(difference(graph_of(module), graph, module), "") << body;
  }
}

}  // namespace
}  // namespace tailor::test
