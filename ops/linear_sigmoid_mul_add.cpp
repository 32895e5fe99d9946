// sigmoid(y) * factor + y, where y = linear(input, weight, bias)
#include "../kernels/chains/linear_sigmoid_mul_add.h"
#include "register.h"

TORCH_LIBRARY_FRAGMENT(tailor, library) {
  tailor::define<tailor::chains::linear_sigmoid_mul_add>(
      library, {"linear_sigmoid_mul_add(Tensor input, Tensor weight, Tensor? bias, Scalar factor) -> Tensor",
                "linear_sigmoid_mul_add.Tensor(Tensor input, Tensor weight, Tensor? bias, Tensor factor) -> Tensor"});
}
