// How float32 may be multiplied on a GPU: by torch's switches, cuBLAS's and our own.
#pragma once

namespace tailor {

// Rounded to TF32: by torch's switch, and cuBLAS's own.
bool tensor_float32_is_allowed();

// As sums of 16-bit numbers: by torch.ops.tailor.fp16x3, and TAILOR_FP16X3=0.
bool split_float32_is_allowed();

}  // namespace tailor
