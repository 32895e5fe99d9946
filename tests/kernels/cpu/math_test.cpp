// sigmoid and swish against long double, and all 16-bit elements there are, with each set of instructions that this machine
// can run.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "math_probe.h"

namespace tailor::test {
namespace {

class Math : public testing::TestWithParam<const Probe*> {
 protected:
  void SetUp() override {
    if (!cpu::can_run(GetParam()->isa)) GTEST_SKIP() << "this machine cannot run " << GetParam()->name;
  }
  const Probe& probe() const { return *GetParam(); }
};

template <class To, class From>
To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class F>
constexpr F infinity = std::numeric_limits<F>::infinity();
template <class F>
constexpr F nan_of = std::numeric_limits<F>::quiet_NaN();

// In units in the last place of the exact result.
template <class F>
double distance(F got, long double exact) {
  const int least = std::numeric_limits<F>::min_exponent - std::numeric_limits<F>::digits;
  const int exponent = exact == 0 ? least : std::max(std::ilogb(exact) + 1 - std::numeric_limits<F>::digits, least);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact) / std::ldexp(1.0L, exponent));
}

template <class F>
void expect_exact(void (*sigmoid)(const F*, F*, std::int64_t), void (*swish)(const F*, F*, std::int64_t),
                  const std::vector<F>& values, F overflows, double within) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<F> sigmoids(values.size());
  std::vector<F> swishes(values.size());
  sigmoid(values.data(), sigmoids.data(), count);
  swish(values.data(), swishes.data(), count);
  double worst_sigmoid = 0;
  double worst_swish = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const F v = values[i];
    if (std::isnan(v)) {
      ASSERT_TRUE(std::isnan(sigmoids[i]) && std::isnan(swishes[i])) << i;
    } else if (std::isinf(v)) {
      EXPECT_EQ(sigmoids[i], v > 0 ? 1 : 0);
      EXPECT_TRUE(v > 0 ? swishes[i] == v : std::isnan(swishes[i])) << swishes[i];
    } else if (v < overflows) {
      ASSERT_EQ(sigmoids[i], 0) << v;
      ASSERT_EQ(swishes[i], 0) << v;
    } else {
      const long double exact = 1 / (1 + std::exp(-static_cast<long double>(v)));
      worst_sigmoid = std::max(worst_sigmoid, distance(sigmoids[i], exact));
      worst_swish = std::max(worst_swish, distance(swishes[i], exact * v));
    }
  }
  EXPECT_LE(worst_sigmoid, within);
  EXPECT_LE(worst_swish, within);
}

template <class F>
std::vector<F> special() {
  std::vector<F> values{0,
                        F(-0.0),
                        1,
                        -1,
                        infinity<F>,
                        -infinity<F>,
                        nan_of<F>,
                        std::numeric_limits<F>::max(),
                        -std::numeric_limits<F>::max(),
                        std::numeric_limits<F>::min(),
                        std::numeric_limits<F>::denorm_min()};
  for (int hundredths = -72000; hundredths < 72000; hundredths += 37) values.push_back(F(hundredths) / 100);
  values.resize((values.size() + 15) / 16 * 16, F(-100));
  return values;
}

TEST_P(Math, Float) {
  // Every 499th float there is, NaNs of every kind among them.
  std::vector<float> values;
  for (std::uint64_t word = 0; word < (std::uint64_t{1} << 32); word += 499)
    values.push_back(bits<float>(static_cast<std::uint32_t>(word)));
  values.resize(values.size() / 16 * 16);
  expect_exact<float>(probe().sigmoid, probe().swish, values, -0x1.62e43p6f, 2.5);
  expect_exact<float>(probe().sigmoid, probe().swish, special<float>(), -0x1.62e43p6f, 2.5);
}

TEST_P(Math, Double) {
  std::mt19937_64 random(1);
  std::vector<double> values(1 << 20);
  std::uniform_real_distribution<double> uniform(-745, 745);
  std::normal_distribution<double> normal(0, 3);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? uniform(random) : normal(random);
  expect_exact<double>(probe().sigmoid_double, probe().swish_double, values, -0x1.62e42fefa39f0p9, 2.5);
  expect_exact<double>(probe().sigmoid_double, probe().swish_double, special<double>(), -0x1.62e42fefa39f0p9, 2.5);
}

TEST_P(Math, QuickIsRightToSeventeenBits) {
  std::vector<float> values;
  for (int i = -80000; i < 80000; ++i) values.push_back(static_cast<float>(i) / 1000);
  values.resize(values.size() / 16 * 16);
  std::vector<float> sigmoids(values.size());
  std::vector<float> swishes(values.size());
  probe().quick_sigmoid(values.data(), sigmoids.data(), static_cast<std::int64_t>(values.size()));
  probe().quick_swish(values.data(), swishes.data(), static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double exact = 1 / (1 + std::exp(-static_cast<double>(values[i])));
    ASSERT_NEAR(sigmoids[i] / exact, 1, 0x1p-17) << values[i];
    ASSERT_NEAR(swishes[i], exact * values[i], 0x1p-17 * std::fabs(exact * values[i])) << values[i];
  }
  const float ends[16] = {infinity<float>, -infinity<float>, nan_of<float>, -100, 100};
  float sigmoid_ends[16];
  float swish_ends[16];
  probe().quick_sigmoid(ends, sigmoid_ends, 16);
  probe().quick_swish(ends, swish_ends, 16);
  EXPECT_NEAR(sigmoid_ends[0], 1, 1e-6);
  EXPECT_EQ(sigmoid_ends[1], 0);
  EXPECT_TRUE(std::isnan(sigmoid_ends[2]));
  EXPECT_EQ(swish_ends[0], infinity<float>);
  EXPECT_TRUE(std::isnan(swish_ends[1]));
  EXPECT_TRUE(std::isnan(swish_ends[2]));
  EXPECT_EQ(swish_ends[3], 0);
  EXPECT_NEAR(swish_ends[4], 100, 1e-3);
}

std::vector<std::uint16_t> all_16_bits() {
  std::vector<std::uint16_t> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  return all;
}

// The value of a number with these widths of exponent and mantissa.
double value_of(unsigned word, int exponent_bits, int mantissa_bits) {
  const int sign = (word >> 15) != 0 ? -1 : 1;
  const int exponent = static_cast<int>((word & 0x7fff) >> mantissa_bits);
  const int mantissa = static_cast<int>(word) & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? nan_of<double> : sign * infinity<double>;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

void expect_conversions(void (*widen)(const std::uint16_t*, float*, std::int64_t),
                        void (*narrow)(const float*, std::uint16_t*, std::int64_t), int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const auto all = all_16_bits();
  std::vector<float> wide(all.size());
  widen(all.data(), wide.data(), 1 << 16);
  for (unsigned word = 0; word < (1u << 16); ++word) {
    const double value = value_of(word, exponent_bits, mantissa_bits);
    if (std::isnan(value))
      ASSERT_TRUE(std::isnan(wide[word])) << word;
    else
      ASSERT_EQ(wide[word], value) << word;
  }
  std::vector<std::uint16_t> back(all.size());
  narrow(wide.data(), back.data(), 1 << 16);
  for (unsigned word = 0; word < (1u << 16); ++word) {
    if (std::isnan(wide[word]))
      ASSERT_TRUE(std::isnan(value_of(back[word], exponent_bits, mantissa_bits))) << word;
    else
      ASSERT_EQ(back[word], word);
  }
  // Between two neighbours: a little below the middle, the middle, a little above it.
  std::vector<float> between;
  std::vector<unsigned> wanted;
  const unsigned most = static_cast<unsigned>((1 << exponent_bits) - 1) << mantissa_bits;  // infinity
  for (unsigned word = 0; word < most; ++word) {
    const double low = value_of(word, exponent_bits, mantissa_bits);
    const double high = word + 1 < most ? value_of(word + 1, exponent_bits, mantissa_bits)
                                        : 2 * low - value_of(word - 1, exponent_bits, mantissa_bits);
    const auto middle = static_cast<float>((low + high) / 2);
    for (const float sign : {1.0f, -1.0f}) {
      const unsigned minus = sign < 0 ? 0x8000 : 0;
      between.insert(between.end(), {sign * std::nextafter(middle, 0.0f), sign * middle,
                                     sign * std::nextafter(middle, infinity<float>)});
      wanted.insert(wanted.end(), {word | minus, (word % 2 == 0 ? word : word + 1) | minus, (word + 1) | minus});
    }
  }
  between.resize((between.size() + 15) / 16 * 16);
  std::vector<std::uint16_t> got(between.size());
  narrow(between.data(), got.data(), static_cast<std::int64_t>(between.size()));
  for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(got[i], wanted[i]) << between[i];
}

TEST_P(Math, BFloat16) { expect_conversions(probe().from_bfloat16, probe().to_bfloat16, 8); }
TEST_P(Math, Float16) { expect_conversions(probe().from_float16, probe().to_float16, 5); }

#if defined(__x86_64__)
const auto probes = testing::Values(&probe_baseline, &probe_avx2, &probe_avx512);
#else
const auto probes = testing::Values(&probe_baseline);
#endif
INSTANTIATE_TEST_SUITE_P(Every, Math, probes, [](const auto& instance) { return std::string(instance.param->name); });

}  // namespace
}  // namespace tailor::test
