// What a module has: its submodules, and modules and objects of scripted classes wherever else they hang, in lists, tuples, dictionaries
// and in one another. All who look into what a module has walk here.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tailor {

using Object = c10::intrusive_ptr<c10::ivalue::Object>;

// A value that is no list, tuple or dictionary, and how its owner has it.
struct Held {
  std::string place;  // "encoder"; "experts.0" in a list or tuple; "heads.left" under a dictionary's key
  const c10::IValue& value;
  bool has_own_class;  // an object whose class its owner knows, and not an interface of it, or nothing
};

// Visits what an object has in its slots; of a list, a tuple or a dictionary the objects and tensors in it. No key can be an object.
void for_each_held(const c10::ivalue::Object& owner, const std::function<void(const Held&)>& visit);

struct Placed {
  std::string path;  // from the module; empty for itself
  Object object;
};

// The module and all objects in it, each once, owners first.
std::vector<Placed> objects_in(const torch::jit::Module& module);

// What hangs at a path, such as "experts.0.gemm.weight".
std::optional<c10::IValue> held_at(const c10::ivalue::Object& owner, std::string_view path);

// A path, and what comes behind it.
std::string beneath(const std::string& path, const std::string& place);

}  // namespace tailor
