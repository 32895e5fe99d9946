// swish(swish(group_norm(linear(input, weight, bias))) * scale)
#include "../kernels/chains/linear_group_norm_swish_mul_swish.h"
#include "register.h"

TORCH_LIBRARY_FRAGMENT(tailor, library) {
  tailor::define<tailor::chains::linear_group_norm_swish_mul_swish>(
      library, {"linear_group_norm_swish_mul_swish(Tensor input, Tensor weight, Tensor? bias, int num_groups, "
                "Tensor? norm_weight, Tensor? norm_bias, float eps, bool cudnn_enabled, Tensor scale) -> Tensor"});
}
