#include "tools/draw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "tools/flow.h"
#include "tools/layout.h"

namespace tailor::tool {
namespace {

using torch::jit::Module;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

Module module(const std::string& code, const std::string& name = "Net") {
  Module result(name);
  Module gemm("Gemm");
  gemm.register_parameter("weight", at::randn({8, 4}), /*is_buffer=*/false);
  result.register_module("gemm", gemm);
  result.register_parameter("scale", at::randn({8}), /*is_buffer=*/false);
  result.register_attribute("training", c10::BoolType::get(), true);
  result.define(code);
  return result;
}

Flow flow(const std::string& code, std::size_t most_boxes = 100) {
  return flow_of(module(code).get_method("forward").graph()->copy(), most_boxes);
}

// `title: lines <- titles of what it reads`, one for each box.
std::string written(const Flow& flow) {
  std::string text;
  for (std::size_t i = 0; i < flow.boxes.size(); ++i) {
    text += flow.boxes[i].title + ":";
    for (const auto& line : flow.boxes[i].lines) text += " " + line + ";";
    for (const auto& arrow : flow.arrows)
      if (arrow.to == i) text += " <- " + flow.boxes[arrow.from].title + (arrow.label.empty() ? "" : " " + arrow.label);
    text += "\n";
  }
  return text;
}

const char* const residual = R"(
def forward(self, x):
    y = torch.linear(x, self.gemm.weight)
    z = torch.sigmoid(y)
    return torch.add(z * self.scale * 2.5, y, alpha=3)
)";

TEST(Flow, ShowsWeightsAndNumbersInsideTheirReaders) {
  EXPECT_EQ(written(flow(residual)),
            "x:\n"
            "linear: gemm.weight; <- x x\n"
            "sigmoid: <- linear y\n"
            "mul: scale; <- sigmoid z\n"
            "mul: 2.5; <- mul\n"
            "add: alpha=3; <- linear y <- mul\n"
            "output: <- add\n");
}

TEST(Flow, LeavesOutWhatIsTheDefault) {
  EXPECT_EQ(written(flow("def forward(self, x):\n    return torch.add(x, self.scale, alpha=1)\n")),
            "x:\nadd: scale; <- x x\noutput: <- add\n");
}

// Written out, the last list has 30^5 words.
TEST(Flow, WritesNothingOutThatNobodySees) {
  std::string code = "def forward(self, x):\n    l0 = x.size(0)\n";
  for (int level = 1; level <= 5; ++level) {
    code += "    l" + std::to_string(level) + " = [";
    for (int i = 0; i < 30; ++i) code += (i > 0 ? ", l" : "l") + std::to_string(level - 1);
    code += "]\n";
  }
  const std::clock_t begin = std::clock();
  EXPECT_EQ(written(flow(code + "    return x + torch.tensor(l5)\n")),
            "x:\n"
            "tensor: data=[[[[[…, …, …, …, …, …, …, …, …, …, …, …; <- x x\n"
            "add: <- x x <- tensor\n"
            "output: <- add\n");
  EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC);
}

TEST(Flow, LeavesOutWhatHoldsOperands) {
  auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(R"(graph(%self, %x : Tensor, %w : Tensor, %count : Tensor, %training : bool):
  %held : Tensor, %weight : Tensor = prim::If(%training)
    block0():
      %a : Tensor = tailor::unwritten(%x, %count)
      %b : Tensor = tailor::unwritten(%w, %count)
      -> (%a, %b)
    block1():
      -> (%x, %w)
  %again : Tensor = tailor::unwritten(%held, %count)
  %none : NoneType = prim::Constant()
  %two : float = prim::Constant[value=2.]()
  %y : Tensor = tailor::linear_sigmoid_mul_add(%again, %weight, %none, %two)
  return (%y))",
                      graph.get());
  EXPECT_EQ(written(flow_of(graph, 100)),
            "x:\n"
            "w:\n"
            "count:\n"
            "training:\n"
            "tailor::linear_sigmoid_mul_add: factor=2; <- x x <- w w\n"
            "output: <- tailor::linear_sigmoid_mul_add\n");
}

TEST(Flow, ShowsBranchesAsOneBoxWithTheirCondition) {
  EXPECT_EQ(written(flow(R"(
def forward(self, x):
    assert x.dim() == 2 or x.dim() == 3
    y = x
    if self.training:
        y = torch.relu(x) * self.scale
    return y
)")),
            "x:\n"
            "if dim(x) == 2 or dim(x) == 3: else: raise; <- x x\n"
            "if training: relu, mul; else: x; <- x x\n"
            "output: <- if training y\n");
}

TEST(Flow, ShowsLoopsAsOneBox) {
  EXPECT_EQ(written(flow(R"(
def forward(self, x, n: int):
    for i in range(n):
        x = torch.relu(x)
    return x
)")),
            "x:\nn:\nloop: relu; <- x x <- n n\noutput: <- loop x\n");
}

TEST(Flow, StopsAfterSoManyBoxesAndCountsTheRest) {
  std::string code = "def forward(self, x):\n";
  for (int i = 0; i < 50; ++i) code += "    x = torch.relu(x)\n";
  const auto cut = flow(code + "    return x\n", 10);
  EXPECT_EQ(cut.boxes.size(), 11U);  // and the output
  EXPECT_EQ(cut.hidden, 41U);
  EXPECT_EQ(cut.ops, 50U);
}

TEST(Shorten, CountsCharactersNotBytes) {
  EXPECT_EQ(shorten("abcdef", 6), "abcdef");
  EXPECT_EQ(shorten("abcdef", 4), "abc…");
  EXPECT_EQ(shorten("äöüßé", 4), "äöü…");
  EXPECT_EQ(shorten("äöüßé", 5), "äöüßé");
}

TEST(LayOut, PutsBoxesBelowWhatTheyReadAndApart) {
  const auto drawn = flow(residual);
  const std::vector<Size> sizes(drawn.boxes.size(), Size{100, 30});
  const auto layout = lay_out(drawn, sizes);
  for (const auto& arrow : drawn.arrows) EXPECT_GT(layout.boxes[arrow.to].y, layout.boxes[arrow.from].y + 30);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_GE(layout.boxes[i].x - 50, -1e-6);
    EXPECT_LE(layout.boxes[i].x + 50, layout.size.width + 1e-6);
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_TRUE(std::abs(layout.boxes[i].x - layout.boxes[j].x) >= 100 - 1e-6 ||
                  std::abs(layout.boxes[i].y - layout.boxes[j].y) >= 30);
  }
}

TEST(LayOut, LeadsLongArrowsAroundBoxes) {
  const auto drawn = flow(residual);
  const std::vector<Size> sizes(drawn.boxes.size(), Size{100, 30});
  const auto layout = lay_out(drawn, sizes);
  std::size_t ways = 0;  // through a rank, each from its top to its bottom
  for (const auto& route : layout.arrows)
    for (std::size_t p = 1; p + 2 < route.size(); p += 2) {
      ++ways;
      const double middle = (route[p].y + route[p + 1].y) / 2;
      for (const auto& box : layout.boxes)
        EXPECT_FALSE(std::abs(route[p].x - box.x) < 50 && std::abs(middle - box.y) < 15);
    }
  EXPECT_GT(ways, 0U);
}

TEST(Draw, ShowsOneGraphOrTwo) {
  const auto net = module(residual);
  const auto one = draw(net, nullptr), two = draw(net, &net);
  EXPECT_TRUE(one.starts_with("<svg ")) << one;
  EXPECT_TRUE(one.ends_with("</svg>\n"));
  EXPECT_EQ(count(one, ">linear</text>"), 1U);
  EXPECT_EQ(count(two, ">linear</text>"), 2U);
  EXPECT_EQ(count(two, ">Net, before</text>"), 1U);
  EXPECT_EQ(count(two, ">after</text>"), 1U);
  EXPECT_EQ(count(two, "<g"), count(two, "</g>"));
}

TEST(Draw, EscapesText) {
  const auto svg =
      draw(module("def forward(self, x):\n    if x.size(0) < 2:\n        x = x + 1\n    return x\n"), nullptr);
  EXPECT_EQ(count(svg, "if size(x, 0) &lt; 2"), 1U) << svg;
}

TEST(Draw, LeavesTheModuleAsItWas) {
  const auto net =
      module("def scaled(self, x):\n    return x * self.scale\ndef forward(self, x):\n    return self.scaled(x)\n");
  const auto before = net.get_method("forward").graph()->toString();
  EXPECT_NE(before.find("prim::CallMethod"), std::string::npos);
  draw(net, &net);
  EXPECT_EQ(net.get_method("forward").graph()->toString(), before);  // with its calls, which a picture has inlined
}

TEST(Draw, CutsAGraphThatIsNoPicture) {
  std::string code = "def forward(self, x):\n";
  for (int i = 0; i < 3000; ++i) code += "    x = torch.relu(x)\n";
  const auto svg = draw(module(code + "    return x\n"), nullptr);
  EXPECT_LT(svg.size(), 200'000U);
  EXPECT_EQ(count(svg, "3000 ops, the last 2881 not drawn"), 1U);
}

}  // namespace
}  // namespace tailor::tool
