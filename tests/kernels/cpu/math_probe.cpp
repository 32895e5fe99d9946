#include "math_probe.h"

#include "kernels/cpu/math.h"

namespace tailor::cpu::TAILOR_ISA {
namespace {

template <class From, class To, auto Function>
void each(const Raw<From>* from, Raw<To>* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += lanes<Compute<To>>) store<To>(to + i, Function(load<From>(from + i)));
}

template <class F>
constexpr auto same = [](Lanes<F> v) { return v; };
template <class F>
constexpr auto sigmoid = [](Lanes<F> v) { return ExactMath::sigmoid(v); };
template <class F>
constexpr auto swish = [](Lanes<F> v) { return ExactMath::swish(v); };
constexpr auto quick_sigmoid = [](Lanes<float> v) { return QuickMath::sigmoid(v); };
constexpr auto quick_swish = [](Lanes<float> v) { return QuickMath::swish(v); };

#define TAILOR_TEXT_OF(name) #name
#define TAILOR_TEXT(name) TAILOR_TEXT_OF(name)

constexpr test::Probe probe{Isa::TAILOR_ISA,
                            TAILOR_TEXT(TAILOR_ISA),
                            each<float, float, sigmoid<float>>,
                            each<float, float, swish<float>>,
                            each<double, double, sigmoid<double>>,
                            each<double, double, swish<double>>,
                            each<float, float, quick_sigmoid>,
                            each<float, float, quick_swish>,
                            each<BFloat16, float, same<float>>,
                            each<float, BFloat16, same<float>>,
                            each<Float16, float, same<float>>,
                            each<float, Float16, same<float>>};

}  // namespace
}  // namespace tailor::cpu::TAILOR_ISA

#define TAILOR_JOIN_NAMES(a, b) a##b
#define TAILOR_JOIN(a, b) TAILOR_JOIN_NAMES(a, b)
const tailor::test::Probe tailor::test::TAILOR_JOIN(probe_, TAILOR_ISA) = tailor::cpu::TAILOR_ISA::probe;
