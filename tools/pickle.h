// Checks what a pickle says about tensors, before torch believes it. torch's unpickler makes a tensor from a record and
// from a count, sizes and strides that it does not compare with one another: a number too large shows the program's own
// memory as values, or ends it.
//
// The pickle is run as torch runs it, on a stack of values of which only kinds, numbers and texts are kept. Only what
// torch writes for a module is accepted; what may be said in another way is a trick.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace tailor::tool {

// The size of the record that holds a tensor's values, by the key that the pickle gives; nothing if there is none.
using StorageSize = std::function<std::optional<std::uint64_t>(const std::string& key)>;

// Throws Damage. Memory and time are bounded by the size of the pickle.
void check_pickle(std::span<const unsigned char> pickle, const StorageSize& size_of);

}  // namespace tailor::tool
