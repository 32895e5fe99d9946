// The pass over modules: which methods are sites, which graphs change, and what runs afterwards.
#include "passes/modules.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ir.h"

namespace tailor::test {
namespace {

constexpr const char* chain = "return self.bn(self.linear(x) * self.scale)";

at::Tensor input() { return at::linspace(-1, 1, 35, at::kDouble).view({7, 5}); }

std::string text_of(const Module& module, const char* method = "forward") {
  return module.get_method(method).graph()->toString(false);
}

TEST(Fuse, KeepsAMethodWithoutSitesAsItWas) {
  Module module = net("return torch.relu(self.linear(x))");
  const std::string before = text_of(module);
  EXPECT_EQ(fuse(module).fused(), 0u);
  EXPECT_EQ(text_of(module), before);
  EXPECT_NE(before.find("prim::CallMethod"), std::string::npos);  // not inlined
}

// What its graph shows is what runs, also where a plan was made before. The executor's own door is shut: it would fuse too.
TEST(Fuse, RunsFromTheNextCall) {
  const bool before = automatic(false);
  for (const bool has_run : {false, true}) {
    Module module = net(chain);
    const Module plain = module.deepcopy();
    const auto wanted = run(graph_of(plain), plain, {input()});
    if (has_run)
      for (int i = 0; i < 3; ++i) module.deepcopy().forward({input()});  // another instance, the same plan
    const auto counted = [&] { return calls_of("linear_mul_batch_norm"); };
    std::int64_t calls = counted();

    EXPECT_EQ(fuse(module).fused(), 1u);
    EXPECT_TRUE(needs_tailor(module));
    const auto got = module.forward({input()}).toTensor();
    EXPECT_TRUE(at::allclose(got, wanted.values[0])) << has_run;
    EXPECT_EQ(module.attr("tracked").toTensor().item<std::int64_t>(), 1);
    EXPECT_EQ(counted(), calls + 1) << has_run;

    calls = counted();
    unfuse(module);
    EXPECT_FALSE(needs_tailor(module));
    EXPECT_TRUE(at::allclose(module.forward({input()}).toTensor(), got));  // batch statistics
    EXPECT_EQ(module.attr("tracked").toTensor().item<std::int64_t>(), 2);
    EXPECT_EQ(counted(), calls) << has_run;
  }
  automatic(before);
}

TEST(Fuse, InstancesShareTheClass) {
  Module one = net(chain);
  Module two = one.deepcopy();
  two.setattr("scale", at::randn({7, 1}, at::kDouble));
  const auto wanted = run(graph_of(two), two, {input()});
  EXPECT_EQ(fuse(one).fused(), 1u);
  EXPECT_TRUE(needs_tailor(two));
  EXPECT_EQ(difference(wanted, run(two.get_method("forward").graph(), two, {input()})), "");
}

TEST(Fuse, EveryMethod) {
  Module module =
      net("def other_way(self, x):\n    return self.batch_norm(self.linear(x) * self.scale)\ndef forward(self, x):\n   "
          " y = "
          "self.linear(x)\n    return torch.sigmoid(y) * self.factor + y");
  const Report report = fuse(module);
  std::vector<std::string> fused;
  for (const Site& site : report.sites)
    if (site.fused) fused.push_back(site.method + " " + site.rule);
  std::sort(fused.begin(), fused.end());
  EXPECT_EQ(fused, (std::vector<std::string>{"forward linear_sigmoid_mul_add", "other_way linear_mul_batch_norm"}));
}

Module parent_of(const Module& child) {
  Module parent("Parent");
  parent.register_module("child", child);
  parent.register_parameter("scale", at::randn({12}, at::kDouble), false);
  parent.register_attribute("training", c10::BoolType::get(), true);
  parent.define("def forward(self, x):\n    return self.child.forward(x) * self.scale\n");
  return parent;
}

TEST(Fuse, AChildsSitesOnce) {
  Module parent = parent_of(net(chain));
  const Report report = fuse(parent);
  ASSERT_EQ(report.sites.size(), 1u) << report.json();
  EXPECT_EQ(report.sites[0].method, "forward");
  EXPECT_TRUE(report.sites[0].fused);
  EXPECT_TRUE(needs_tailor(parent.attr("child").toModule()));
}

TEST(Fuse, AcrossModules) {
  Module child = net("return self.linear(x)");
  Module parent("Parent");
  parent.register_module("child", child);
  parent.register_parameter("scale", at::randn({12}, at::kDouble), false);
  parent.define(
      "def forward(self, x):\n    return torch.batch_norm(self.child.forward(x) * self.scale, None, None, None, None, "
      "True, "
      "0.1, 0.001, True)\n");
  const auto plain = graph_of(parent);
  EXPECT_EQ(fuse(parent).fused(), 1u);
  EXPECT_EQ(difference(run(plain, parent, {input()}), run(graph_of(parent), parent, {input()})), "");
}

TEST(Inspect, ChangesNothing) {
  const Module module = net(chain);
  const std::string before = text_of(module);
  const Report report = inspect(module);
  EXPECT_EQ(report.fused(), 1u);
  EXPECT_EQ(text_of(module), before);
  EXPECT_FALSE(needs_tailor(module));
}

TEST(Inspect, AgreesWithFuse) {
  for (const char* body : {chain, "return torch.relu(self.linear(x))",
                           "return self.group_norm(self.swish(self.linear(x) + self.linear2(x)))"}) {
    Module module = net(body);
    const std::string seen_before = inspect(module).json();
    EXPECT_EQ(seen_before, fuse(module).json());
    EXPECT_EQ(inspect(module).fused(), fuse(module).fused());  // a second time
  }
}

TEST(Fuse, OnlyTheseRules) {
  Module module = net(chain);
  EXPECT_EQ(fuse(module, {{"linear_sigmoid_mul_add"}}).fused(), 0u);
  EXPECT_FALSE(needs_tailor(module));
  EXPECT_EQ(fuse(module, {{"linear_mul_batch_norm"}}).fused(), 1u);
}

TEST(Unfuse, GivesTheGraphBack) {
  Module module = net(chain);
  const std::string before = text(graph_of(module));
  fuse(module);
  EXPECT_NE(text(graph_of(module)), before);
  const Report report = unfuse(module);
  ASSERT_EQ(report.sites.size(), 1u);
  EXPECT_EQ(text(graph_of(module)), before);
}

// One class in two places is one graph, and two sites of whoever calls it: the report of the way back counts as the others.
TEST(Unfuse, CountsAsFuseDoes) {
  const std::string part = "def part(self, x):\n    return self.bn(torch.linear(x, self.w) * self.scale)\n";
  const Module child = net(part + "def forward(self, x):\n    return self.part(x)\n");
  const auto make_parent = [&](const char* name) {
    Module parent(name);
    parent.register_module("a", child);
    parent.register_module("b", child.deepcopy());
    parent.define("def forward(self, x):\n    return self.a.forward(x) + self.b.part(x)\n");
    return parent;
  };
  Module parent = make_parent("Parent");
  const auto places = [](const Report& report) {
    std::vector<std::string> all;
    for (const Site& site : report.sites) all.push_back(site.rule + " in " + site.method + " at " + site.source);
    return all;
  };
  const auto wanted = places(inspect(parent));
  EXPECT_EQ(wanted.size(), 2u);
  EXPECT_EQ(places(fuse(parent)), wanted);
  EXPECT_EQ(places(inspect(parent)), wanted);
  EXPECT_EQ(places(unfuse(parent)), wanted);
  EXPECT_FALSE(needs_tailor(parent));
  EXPECT_EQ(places(inspect(parent)), wanted);

  Module other_parent = make_parent("Other");
  Module only_the_child = child;  // whom its parent calls
  fuse(only_the_child);
  EXPECT_EQ(places(unfuse(other_parent)), wanted);
  EXPECT_FALSE(needs_tailor(other_parent));
}

TEST(Rules, ThatNobodyKnowsAreRefused) {
  Module module = net(chain);
  const std::string wanted =
      "Tailor has no rule 'linear_mul'. It has linear_add_swish_group_norm, linear_batch_norm_add_div_swish, ";
  const Options options{{"linear_mul_batch_norm", "linear_mul"}};
  for (const bool looks : {true, false}) {
    try {
      looks ? inspect(module, options) : fuse(module, options);
      FAIL() << "nothing was raised";
    } catch (const c10::ValueError& error) {
      EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
    }
  }
  EXPECT_FALSE(needs_tailor(module));
}

TEST(Rules, AreTheSix) {
  EXPECT_EQ(rules(), (std::vector<std::string>{"linear_add_swish_group_norm", "linear_batch_norm_add_div_swish",
                                               "linear_group_norm_swish_mul_swish", "linear_mul_batch_norm",
                                               "linear_sigmoid_mul_add", "linear_swish_add_group_norm"}));
}

}  // namespace
}  // namespace tailor::test
