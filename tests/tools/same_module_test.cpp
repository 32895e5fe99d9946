#include "tools/same_module.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "files.h"
#include "tools/save.h"

namespace tailor::tool {
namespace {

std::string differs(const torch::jit::Module& expected, const torch::jit::Module& actual) {
  return difference(expected, actual).value_or("the same");
}

std::string after(const std::function<void(torch::jit::Module&)>& change) {
  torch::jit::Module changed = example_module();
  change(changed);
  return differs(example_module(), changed);
}

torch::jit::Module with_forward(const std::string& source) {
  torch::jit::Module module("Other");
  module.define(source);
  return module;
}

TEST(SameModule, NamesTheFirstDifference) {
  EXPECT_EQ(after([](auto&) {}), "the same");
  EXPECT_SAYS(after([](auto& m) {
                m.setattr("weight", at::zeros({2, 3}).requires_grad_());
              }),
              "module.weight has other values");
  EXPECT_SAYS(after([](auto& m) { m.setattr("weight", at::zeros({3, 2}).requires_grad_()); }), "another shape");
  EXPECT_SAYS(after([](auto& m) { m.setattr("weight", at::zeros({3, 2}).t().requires_grad_()); }), "other strides");
  EXPECT_SAYS(after([](auto& m) { m.setattr("weight", at::zeros({2, 3})); }), "requires_grad");
  EXPECT_SAYS(after([](auto& m) { m.setattr("half", at::arange(5, at::kBFloat16)); }), "another dtype");
  EXPECT_SAYS(after([](auto& m) { m.setattr("factor", 0.25); }), "module.factor has another value");
  EXPECT_SAYS(after([](auto& m) { m.setattr("names", c10::List<std::string>({"a", "c"})); }), "module.names[1]");
  EXPECT_SAYS(after([](auto& m) { m.register_attribute("more", c10::IntType::get(), 1); }), "number of attributes");
}

// torch leaves out what stands behind a raise when it compiles a file.
TEST(SameModule, LeavesOutWhatIsNeverRun) {
  const auto raises = [](const std::string& before, const std::string& behind) {
    return with_forward("def forward(self, x):\n    y = x\n" + before + "    assert 1.0 < 0.0, \"no\"\n" + behind +
                        "    return y\n");
  };
  const std::string works = "    y = torch.tanh(y)\n", writes = "    x.zero_()\n";
  EXPECT_EQ(differs(raises("", works + writes), raises("", "")), "the same");
  EXPECT_EQ(differs(raises(works, works), raises("", "")), "the same") << "nobody is left who reads it";
  EXPECT_SAYS(differs(raises(writes, works), raises("", works)), "no longer calls aten::zero_");
}

TEST(SameModule, CountsBitsNotValues) {
  const double nan = std::nan("");
  EXPECT_EQ(difference(
                [&] {
                  auto m = example_module();
                  m.setattr("factor", nan);
                  m.setattr("half", at::full({5}, nan, at::kHalf));
                  return m;
                }(),
                [&] {
                  auto m = example_module();
                  m.setattr("factor", nan);
                  m.setattr("half", at::full({5}, nan, at::kHalf));
                  return m;
                }()),
            std::nullopt);
  EXPECT_SAYS(after([](auto& m) {
                at::Tensor zero = at::arange(6, at::kFloat).reshape({2, 3});
                zero[0][0] = -0.0;
                m.setattr("weight", zero.requires_grad_());
              }),
              "other values");
}

// A buffer that was expanded, and one of overlapping windows: a few values in memory, terabytes if they were written out.
TEST(SameModule, CopiesNothingThatIsOnlyRepeated) {
  const auto large = [](double last) {
    torch::jit::Module module = example_module();
    at::Tensor values = at::arange(1 << 20, at::kFloat);
    values[-1] = last;
    module.register_buffer("expanded", at::full({1}, last).expand({1 << 20, 1 << 20}));
    module.register_buffer("windows", values.as_strided({1 << 19, 1 << 19}, {1, 1}));
    module.register_buffer("meta", at::empty({3}, at::TensorOptions(at::kMeta)));
    module.register_buffer("column", at::arange(12).reshape({3, 4}).select(1, 2));
    return module;
  };
  EXPECT_EQ(differs(large(1), large(1)), "the same");
  EXPECT_SAYS(differs(large(1), large(2)), "module.expanded has other values");
  const auto with_column = [&](at::Tensor whole) {
    torch::jit::Module module = large(1);
    module.setattr("column", whole.select(1, 2));
    return module;
  };
  at::Tensor other = at::arange(12).reshape({3, 4});
  other[1][1] = 99;  // between the elements
  EXPECT_EQ(differs(large(1), with_column(other)), "the same");
  other[1][2] = 99;
  EXPECT_SAYS(differs(large(1), with_column(other)), "module.column has other values");

  const Folder folder;
  save_as(folder / "model.pt", large(1));
  EXPECT_EQ(differs(large(1), ModelFile(folder / "model.pt").load(Place::cpu)), "the same");
}

TEST(SameModule, ComparesMethods) {
  const auto first = with_forward("def forward(self, x):\n    return torch.relu(x) + 1\n");
  EXPECT_EQ(difference(first, with_forward("def forward(self, x):\n    y = torch.relu(x)\n    return y + 1\n")),
            std::nullopt);
  EXPECT_SAYS(differs(first, with_forward("def forward(self, x):\n    return torch.tanh(x) + 1\n")),
              "instead of aten::relu");
  EXPECT_SAYS(differs(first, with_forward("def forward(self, x):\n    return torch.relu(x)\n")),
              "no longer calls aten::add");
  EXPECT_SAYS(differs(first, with_forward("def forward(self, y):\n    return torch.relu(y) + 1\n")),
              "another argument");
  EXPECT_SAYS(differs(first, with_forward("def other(self, x):\n    return torch.relu(x) + 1\n")),
              "forward is missing");
}

// As the pass leaves it: inlined, and nobody reads what the first call returned.
TEST(SameModule, KnowsThatTorchDropsWhatNobodyReads) {
  torch::jit::Module module("Net");
  module.define("def part(self, x):\n    return torch.relu(x)\n");
  module.define("def forward(self, x):\n    unused = self.part(x)\n    return torch.tanh(x)\n");
  torch::jit::Inline(*module.get_method("forward").graph());
  const Folder folder;
  save_as(folder / "model.pt", module);
  EXPECT_EQ(differs(module, ModelFile(folder / "model.pt").load(Place::cpu)), "the same");
  EXPECT_EQ(differs(ModelFile(folder / "model.pt").load(Place::cpu), module), "the same");
}

}  // namespace
}  // namespace tailor::tool
