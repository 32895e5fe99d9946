#include "tools/verify.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "verify_net.h"

namespace tailor::tool {
namespace {

TEST(Verify, NamesTheSite) {
  const auto wrong = specimen(std::string(linear) + "  %s : Tensor = aten::mul(%y, %beta)\n" + norm);
  const auto verdict = verify(model(), model(), {specimen(chain), wrong}, {});
  EXPECT_FALSE(verdict.ok);
  EXPECT_TRUE(verdict.message.starts_with("site forward net.py:31 (linear_mul_batch_norm): output differs by "))
      << verdict.message;
}

TEST(Verify, SumsUpWhatWasChecked) {
  auto unknown = specimen(chain);
  unknown.inputs[3] = {"surprise", "", std::nullopt};
  VerifyOptions options;
  EXPECT_EQ(verify(model(), model(), {specimen(chain), unknown, specimen(chain)}, options).message,
            "2 chains checked by themselves, 1 chain not (nothing is known about its operand "
            "'surprise'), the whole model not (describe its arguments with --input)");
  options.inputs = {"float32[16,40]"};
  std::vector<std::size_t> seen;
  options.progress = [&](std::size_t done, std::size_t total, const std::string&) {
    EXPECT_EQ(total, 2U);
    seen.push_back(done);
  };
  EXPECT_EQ(verify(model(), model(), {specimen(chain)}, options).message,
            "1 chain checked by itself, the whole model checked");
  EXPECT_EQ(seen, (std::vector<std::size_t>{0, 1, 2}));
  const char* const scaled_by = "def forward(self, x, s: float):\n    return torch.linear(x, self.weight) * s\n";
  const VerifyOptions with_number{{"float32[16,40]", "3"}, {}, 0, {}};  // of the type that forward wants
  EXPECT_TRUE(verify(model(scaled_by), model(scaled_by), {}, with_number).ok);
  options.inputs = {"float32(16)"};
  EXPECT_THROW(verify(model(), model(), {specimen(chain)}, options), std::invalid_argument);
}

}  // namespace
}  // namespace tailor::tool
