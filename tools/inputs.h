// Inputs for a model: described by a text such as `float32[16,8192]` or `0.5`, or read from a file.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <string>
#include <vector>

namespace tailor::tool {

struct InputText {
  at::ScalarType dtype;
  std::vector<int64_t> sizes;
  c10::IValue number{};  // or this, which is no tensor
};

// Reads `dtype[size,size,…]`, of which `dtype[]` is a tensor without dimensions; or a number: `3`, `0.5`, `true`. Throws
// std::invalid_argument, whose message says what is wrong with the text.
InputText parse_input(const std::string& text);

// Standard normal values; integers from 0 to 9, which index most embeddings; true and false.
at::Tensor sample(const InputText& input, at::Generator generator);

// What a file holds knows less of its types than the argument that it is for: a dictionary from anything to anything, a
// list of anything, 2 where a float is wanted. The value in the argument's type where it fits, else as it is.
c10::IValue fitted(const c10::IValue& value, const c10::TypePtr& type);

// The arguments in a file that torch.save wrote: one tensor, or a tuple or list with one element for each argument.
// Throws std::invalid_argument.
std::vector<c10::IValue> read_inputs(const std::string& path);

// The same of the bytes of such a file.
std::vector<c10::IValue> read_inputs(const std::vector<char>& bytes, const std::string& path);

// The last line of what an exception says that is not empty: TorchScript puts its traceback above ATen's own message.
std::string last_line(const std::string& what);

}  // namespace tailor::tool
