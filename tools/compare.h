// Is a fused value as good as the eager one? A float64 run of the same computation is the referee.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

namespace tailor::tool {

// How much worse than eager's a fused value's largest error may be.
struct Tolerance {
  // Times eager's own error.
  double times = 1.5;
  // Or this many units in the last place of the largest value: eager's error is often zero, where few values were added
  // up or where they are exact, and then a factor allows nothing.
  double ulps = 1;
  // float64 is its own referee: eager's error reads as zero there, and an op that adds in another order is not wrong. So
  // float64 is allowed this fraction of its largest value.
  double of_float64 = 1e-10;
  // A largest value to take in place of the tensor's own, where the tensor is a sum in which larger ones cancel.
  double largest = 0;
  // What the value was computed in: of results that were made float32 at the end, what was before.
  at::ScalarType computed = at::kDouble;
};

// One value of three runs. `exact` is undefined where there is no referee: then fused and eager may differ by `times` the
// square root of the dtype's epsilon, half of its digits. Of the numbers of a tensor that has none, on the device `meta`, nothing is said.
struct Triple {
  std::string name;
  at::Tensor fused, eager, exact;
  bool strides = true;  // whether they must agree: those of a gradient are nobody's promise
};

// Nothing where the fused value is good enough, else one phrase, such as 'output differs by 0.1, eager's own error is
// 1e-06'.
std::optional<std::string> difference(const Triple& value, const Tolerance& tolerance);

// Numbers that torch can keep, and neither compare nor convert.
bool are_bytes(at::ScalarType dtype);
// Those of a floating dtype that it can.
bool are_floating(at::ScalarType dtype);

// Of two dtypes the one of fewer digits.
at::ScalarType coarser(at::ScalarType one, at::ScalarType other);

// A tensor's numbers one beside the other, whether or not its layout has them so; undefined where it has none.
at::Tensor dense(const at::Tensor& tensor);

// One unit in the last place of numbers of this size; 0 for integers.
double unit_in_last_place(at::ScalarType dtype, double magnitude);

// The largest finite absolute value; 0 where there is none.
double largest(const at::Tensor& tensor);

// A tensor with the place where it was found: 'output', 'output[1]', 'output[mask]'.
struct Leaf {
  std::string name;
  at::Tensor tensor;
};

// The tensors inside nested tuples, lists, dictionaries, objects and futures, in order; of a nested tensor those that it is made of.
std::vector<Leaf> tensors_in(const c10::IValue& value, const std::string& name);

// What a number in a result was computed of: how large such tensors' numbers are, and in which dtype, the coarsest of several.
struct Computed {
  double size = 0;
  at::ScalarType dtype = at::kFloat;
};

// What differs in two results besides their tensors' values: kinds, lengths, keys, numbers, strings. Nothing if none. A number may
// differ by the digits that its dtype may lose, of itself or of the size: of float32 by a thousandth.
std::optional<std::string> other_shape(const c10::IValue& fused, const c10::IValue& eager, const std::string& name,
                                       const Computed& of = {});

// A copy of everything; with `floating`, every tensor of a floating dtype in that dtype.
c10::IValue copy_as(const c10::IValue& value, std::optional<at::ScalarType> floating);

}  // namespace tailor::tool
