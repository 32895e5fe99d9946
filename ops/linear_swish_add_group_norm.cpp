// group_norm(swish(linear(input, weight, bias)) + addend)
#include "../kernels/chains/linear_swish_add_group_norm.h"
#include "register.h"

TORCH_LIBRARY_FRAGMENT(tailor, library) {
  tailor::define<tailor::chains::linear_swish_add_group_norm>(
      library, {"linear_swish_add_group_norm(Tensor input, Tensor weight, Tensor? bias, Tensor addend, int num_groups, "
                "Tensor? norm_weight, Tensor? norm_bias, float eps, bool cudnn_enabled) -> Tensor"});
}
