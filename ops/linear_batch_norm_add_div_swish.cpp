// swish((batch_norm(linear(input, weight, bias)) + addend) / divisor)
#include "../kernels/chains/linear_batch_norm_add_div_swish.h"
#include "register.h"

TORCH_LIBRARY_FRAGMENT(tailor, library) {
  tailor::define<tailor::chains::linear_batch_norm_add_div_swish>(
      library,
      {"linear_batch_norm_add_div_swish(Tensor input, Tensor weight, Tensor? bias, Tensor? norm_weight, "
       "Tensor? norm_bias, Tensor(a!)? running_mean, Tensor(b!)? running_var, bool training, float momentum, "
       "float eps, bool cudnn_enabled, Tensor addend, Scalar divisor) -> Tensor",
       "linear_batch_norm_add_div_swish.Tensor(Tensor input, Tensor weight, Tensor? bias, "
       "Tensor? norm_weight, Tensor? norm_bias, Tensor(a!)? running_mean, Tensor(b!)? running_var, "
       "bool training, float momentum, float eps, bool cudnn_enabled, Tensor addend, Tensor divisor) -> Tensor",
       "linear_batch_norm_add_div_swish.inference(Tensor input, Tensor weight, Tensor? bias, "
       "Tensor? norm_weight, Tensor? norm_bias, Tensor? running_mean, Tensor? running_var, float eps, "
       "bool cudnn_enabled, Tensor addend, Scalar divisor) -> Tensor",
       "linear_batch_norm_add_div_swish.inference_Tensor(Tensor input, Tensor weight, Tensor? bias, "
       "Tensor? norm_weight, Tensor? norm_bias, Tensor? running_mean, Tensor? running_var, float eps, "
       "bool cudnn_enabled, Tensor addend, Tensor divisor) -> Tensor"});
}
