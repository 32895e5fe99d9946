// Inputs for a model: described by a text such as `float32[16,8192]`, or read from a file.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace tailor::tool {

struct InputText {
  at::ScalarType dtype;
  std::vector<int64_t> sizes;
};

// Reads `dtype[size,size,…]`; `dtype[]` is a tensor without dimensions. Throws std::invalid_argument, whose message says
// what is wrong with the text.
InputText parse_input(const std::string& text);

// Standard normal values; integers from 0 to 9, which index most embeddings; true and false.
at::Tensor sample(const InputText& input, at::Generator generator);

// The arguments in a file that torch.save wrote: one tensor, or a tuple or list with one element for each argument.
// Throws std::invalid_argument.
std::vector<c10::IValue> read_inputs(const std::string& path);

// The last line of what an exception says that is not empty: TorchScript puts its traceback above ATen's own message.
std::string last_line(const std::string& what);

}  // namespace tailor::tool
