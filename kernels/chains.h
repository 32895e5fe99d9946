// The six chains, one header each, so that touching one compiles one anew. `y` is linear(input, weight, bias); the norms
// bring their own arguments. A chain's op is tailor::<name>, its arguments are those of the linear and then the formula's, in
// the formula's order.
#pragma once
#include "chains/linear_add_swish_group_norm.h"
#include "chains/linear_batch_norm_add_div_swish.h"
#include "chains/linear_group_norm_swish_mul_swish.h"
#include "chains/linear_mul_batch_norm.h"
#include "chains/linear_sigmoid_mul_add.h"
#include "chains/linear_swish_add_group_norm.h"
