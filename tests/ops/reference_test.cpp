// Each op against the chain as an author writes it, in float64: values, gradients, and the statistics that it leaves. Once
// as the kernels take it, and once so that none does.
#include "ops/reference.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>
#include <set>
#include <string>

#include "sample.h"

namespace tailor::test {
namespace {

struct Case {
  const char* op;
  const char* overload;
  at::Tensor (*chain)(const Arguments&, const at::Tensor& y);

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.op << '.' << c.overload; }
};

at::Tensor tensor(const Arguments& a, const char* name) { return a.at(name).toTensor(); }
std::optional<at::Tensor> optional(const Arguments& a, const char* name) { return a.at(name).toOptional<at::Tensor>(); }
at::Tensor swish(const at::Tensor& v) { return v * v.sigmoid(); }
at::Tensor batch_norm(const Arguments& a, const at::Tensor& y) {
  return at::batch_norm(y, optional(a, "norm_weight"), optional(a, "norm_bias"), optional(a, "running_mean"),
                        optional(a, "running_var"), a.at("training").toBool(), 0.2, 1e-3, true);
}
at::Tensor group_norm(const Arguments& a, const at::Tensor& y) {
  return at::group_norm(y, 3, optional(a, "norm_weight"), optional(a, "norm_bias"), 1e-3, true);
}
at::Tensor mul_batch_norm(const Arguments& a, const at::Tensor& y) { return batch_norm(a, y * tensor(a, "scale")); }
at::Tensor bn_add_div_swish(const Arguments& a, const at::Tensor& y) {
  const auto sum = batch_norm(a, y) + tensor(a, "addend");
  return swish(a.at("divisor").isTensor() ? sum / tensor(a, "divisor") : sum / 1.5);
}

const Case cases[] = {
    {"linear_mul_batch_norm", "", mul_batch_norm},
    {"linear_mul_batch_norm", "inference", mul_batch_norm},
    {"linear_sigmoid_mul_add", "", [](const Arguments&, const at::Tensor& y) { return y.sigmoid() * 2.5 + y; }},
    {"linear_sigmoid_mul_add", "Tensor",
     [](const Arguments& a, const at::Tensor& y) { return y.sigmoid() * tensor(a, "factor") + y; }},
    {"linear_add_swish_group_norm", "",
     [](const Arguments& a, const at::Tensor& y) { return group_norm(a, swish(y + tensor(a, "addend"))); }},
    {"linear_swish_add_group_norm", "",
     [](const Arguments& a, const at::Tensor& y) { return group_norm(a, swish(y) + tensor(a, "addend")); }},
    {"linear_batch_norm_add_div_swish", "", bn_add_div_swish},
    {"linear_batch_norm_add_div_swish", "Tensor", bn_add_div_swish},
    {"linear_batch_norm_add_div_swish", "inference", bn_add_div_swish},
    {"linear_batch_norm_add_div_swish", "inference_Tensor", bn_add_div_swish},
    {"linear_group_norm_swish_mul_swish", "",
     [](const Arguments& a, const at::Tensor& y) { return swish(swish(group_norm(a, y)) * tensor(a, "scale")); }},
};

// The same values in a tensor that no kernel takes: it is still to be negated.
at::Tensor for_the_reference(const at::Tensor& value) { return at::_neg_view(-value); }

class Reference : public testing::TestWithParam<Case> {
 protected:
  template <class Change>
  void compare(const Change& change) {
    compare_on(change, false);
    compare_on(change, true);
  }

 private:
  // The arguments, changed, twice: for the op and for the chain.
  template <class Change>
  void compare_on(const Change& change, bool reference_only) {
    const Case& c = GetParam();
    const auto make = [&] {
      Arguments arguments = sample();
      const std::string overload = c.overload;
      if (overload.find("Tensor") != std::string::npos)
        arguments["factor"] = arguments["divisor"] = at::full({}, 1.5, at::kDouble);
      change(arguments);
      if (overload.starts_with("inference")) arguments["training"] = false;
      if (reference_only) arguments["input"] = for_the_reference(tensor(arguments, "input"));
      for (auto& [name, value] : arguments)
        if (value.isTensor() && !name.starts_with("running")) value.toTensor().requires_grad_();
      return arguments;
    };
    const Arguments mine = make();
    const Arguments theirs = make();
    const auto got = call(op(c.op, c.overload), mine);
    const auto wanted =
        c.chain(theirs, at::linear(tensor(theirs, "input"), tensor(theirs, "weight"), optional(theirs, "bias")));
    ASSERT_EQ(got.sizes(), wanted.sizes());
    ASSERT_EQ(got.scalar_type(), wanted.scalar_type());
    EXPECT_TRUE(at::allclose(got, wanted, 1e-10, 1e-12)) << (got - wanted).abs().max();
    at::Tensor(got * got).sum().backward();
    at::Tensor(wanted * wanted).sum().backward();
    for (const auto& [name, value] : theirs) {
      if (!value.isTensor()) continue;
      const at::Tensor other = tensor(mine, name.c_str());
      EXPECT_TRUE(at::equal(other, value.toTensor()) || name.starts_with("running")) << name << " was written";
      EXPECT_TRUE(at::allclose(other, value.toTensor(), 1e-10, 1e-12)) << name;
      ASSERT_EQ(other.grad().defined(), value.toTensor().grad().defined()) << name;
      if (!other.grad().defined()) continue;
      EXPECT_TRUE(at::allclose(other.grad(), value.toTensor().grad(), 1e-8, 1e-9)) << name;
    }
  }
};

TEST_P(Reference, Everything) {
  compare([](Arguments&) {});
}
TEST_P(Reference, Eval) {
  compare([](Arguments& a) { a["training"] = false; });
}
TEST_P(Reference, NothingOptional) {
  compare([](Arguments& a) { a["bias"] = a["norm_weight"] = a["norm_bias"] = c10::IValue(); });
}
TEST_P(Reference, NoRunningStatistics) {
  if (std::string(GetParam().overload).starts_with("inference")) {  // which cannot do without
    Arguments a = sample();
    if (std::string(GetParam().overload) == "inference_Tensor") a["divisor"] = at::full({}, 1.5, at::kDouble);
    a["running_mean"] = a["running_var"] = c10::IValue();
    EXPECT_THROW(call(op(GetParam().op, GetParam().overload), a), c10::Error);
    return;
  }
  compare([](Arguments& a) { a["running_mean"] = a["running_var"] = c10::IValue(); });
}
TEST_P(Reference, ThreeDimensions) {
  compare([](Arguments& a) {
    a["input"] = at::randn({4, 12, 5}, at::kDouble);
    a["weight"] = at::randn({12, 5}, at::kDouble);
  });
}
TEST_P(Reference, VectorsThatBroadcast) {
  compare([](Arguments& a) { a["scale"] = a["addend"] = at::randn({7, 1}, at::kDouble); });
  compare([](Arguments& a) { a["scale"] = a["addend"] = at::randn({1}, at::kDouble); });
}
INSTANTIATE_TEST_SUITE_P(EveryOp, Reference, testing::ValuesIn(cases), [](const auto& row) {
  const std::string overload = row.param.overload;
  return std::string(row.param.op) + (overload.empty() ? "" : "_" + overload);
});

// The chains above are written by hand, as an author writes them: an op without one is compared with nothing.
TEST(Cases, AreEveryOverload) {
  std::set<std::string> registered;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames())
    if (name.name.starts_with("tailor::") && find_chain(name.name.substr(std::strlen("tailor::"))) != nullptr)
      registered.insert(c10::toString(name));
  std::set<std::string> compared;
  for (const Case& c : cases)
    compared.insert(c10::toString(c10::OperatorName("tailor::" + std::string(c.op), c.overload)));
  EXPECT_EQ(compared, registered);
}

// The first steps alone, as tailor::check wants them.
TEST(Steps, UpToOne) {
  const Chain& chain = *find_chain("linear_add_swish_group_norm");
  const Arguments a = sample();
  const c10::IValue linear[3] = {a.at("input"), a.at("weight"), a.at("bias")};
  StepArguments arguments[5];
  arguments[0].first = linear;
  arguments[1].first = &a.at("addend");
  const auto y = at::linear(tensor(a, "input"), tensor(a, "weight"), optional(a, "bias"));
  EXPECT_TRUE(at::equal(reference(chain, arguments, Norm::as_called, 0), y));
  EXPECT_TRUE(at::equal(reference(chain, arguments, Norm::as_called, 2), y + tensor(a, "addend")));
  EXPECT_TRUE(at::equal(reference(chain, arguments, Norm::skipped, 4), reference(chain, arguments, Norm::skipped, 3)));
}

// silu rounds once and takes no integers; v * sigmoid(v) takes them.
TEST(Swish, ByDtype) {
  Arguments a = sample();
  for (auto& [name, value] : a)
    if (value.isTensor()) value = value.toTensor().to(at::kBFloat16);
  const auto y = at::linear(tensor(a, "input"), tensor(a, "weight"), optional(a, "bias"));
  const auto wanted =
      at::group_norm(at::silu(y) + tensor(a, "addend"), 3, tensor(a, "norm_weight"), tensor(a, "norm_bias"), 1e-3);
  a["input"] = for_the_reference(tensor(a, "input"));
  EXPECT_TRUE(at::equal(call(op("linear_swish_add_group_norm"), a), wanted));
}

}  // namespace
}  // namespace tailor::test
