// batch_norm(linear(input, weight, bias) * scale)
#include "../kernels/chains/linear_mul_batch_norm.h"
#include "register.h"

TORCH_LIBRARY_FRAGMENT(tailor, library) {
  tailor::define<tailor::chains::linear_mul_batch_norm>(
      library, {"linear_mul_batch_norm(Tensor input, Tensor weight, Tensor? bias, Tensor scale, Tensor? norm_weight, "
                "Tensor? norm_bias, Tensor(a!)? running_mean, Tensor(b!)? running_var, bool training, float momentum, "
                "float eps, bool cudnn_enabled) -> Tensor",
                "linear_mul_batch_norm.inference(Tensor input, Tensor weight, Tensor? bias, Tensor scale, "
                "Tensor? norm_weight, Tensor? norm_bias, Tensor? running_mean, Tensor? running_var, float eps, "
                "bool cudnn_enabled) -> Tensor"});
}
