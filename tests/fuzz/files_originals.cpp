#include "files_originals.h"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <tailor/tailor.h>

#include <sstream>

namespace tailor::fuzz {
namespace {

using torch::jit::Module;

// Each norm has statistics and affine parameters of its own kind, so that records exchanged are values exchanged.
Module parts(const std::string& name, at::ScalarType type) {
  Module module(name);
  const auto parameter = [&](const char* each, const at::Tensor& value) {
    module.register_parameter(each, value.to(type).requires_grad_(), false);
  };
  parameter("w", at::randn({6, 4}));
  parameter("square", at::randn({6, 6}));
  for (const char* each : {"b", "scale", "beta"}) parameter(each, at::randn({6}));
  parameter("gamma", at::rand({6}) + 0.5);
  module.register_buffer("mean", at::randn({6}).to(type));
  module.register_buffer("var", (at::rand({6}) + 0.5).to(type));
  module.register_buffer("tracked", at::zeros({}, at::kLong));
  module.register_attribute("factor", c10::FloatType::get(), 2.5);
  module.register_attribute("groups", c10::IntType::get(), 3);
  module.register_attribute("training", c10::BoolType::get(), false);
  return module;
}

constexpr const char* every_chain = R"(
def norm(self, y):
    if self.training:
        self.tracked.add_(1)
    return torch.batch_norm(y, self.gamma, self.beta, self.mean, self.var, self.training, 0.1, 0.001, True)
def groups_of(self, y):
    return torch.group_norm(y, self.groups, self.gamma, self.beta, 0.001, True)
def forward(self, x):
    y = self.norm(torch.linear(x, self.w, self.b) * self.scale)
    z = torch.linear(y, self.square)
    y = torch.sigmoid(z) * self.factor + z
    if bool(y.sum() > 0):
        y = self.groups_of(torch.silu(torch.linear(y, self.square) + self.b))
    z = torch.linear(y, self.square, self.b)
    y = self.groups_of(torch.sigmoid(z) * z + self.scale)
    y = torch.silu((self.norm(torch.linear(y, self.square)) + self.b) / self.factor)
    return torch.silu(torch.silu(self.groups_of(torch.linear(y, self.square, self.b))) * self.scale)
)";

constexpr const char* one_chain = R"(
def forward(self, x):
    y = torch.matmul(x, self.w.t()) * self.scale
    return torch.batch_norm(y, self.gamma, self.beta, self.mean, self.var, self.training, 0.1, 0.001, True)
)";

Module with(Module module, const char* code) {
  module.define(code);
  return module;
}

// A module with another inside, with state that comes back through code, and with a view: two tensors of one storage.
Module nested() {
  Module outer("Outer");
  outer.register_module("inner", with(parts("Inner", at::kDouble), one_chain));
  const at::Tensor whole = at::randn({4, 8});
  outer.register_buffer("left", whole.narrow(1, 0, 3));
  outer.register_buffer("column", whole.select(1, 5));
  outer.register_attribute("names", c10::ListType::ofStrings(), c10::List<std::string>({"a", "b"}));
  outer.define(R"(
def forward(self, x):
    return self.inner.forward(x) + 1
)");
  return outer;
}

Original original(const std::string& name, const Data& data) {
  return {name, data, tool::check_module_archive(tool::MemoryBytes(data), name), as_torch_reads(data)};
}

}  // namespace

Contents as_torch_reads(const Data& data) {
  std::istringstream in(std::string(data.begin(), data.end()));
  caffe2::serialize::PyTorchStreamReader reader(&in);
  Contents contents;
  for (const std::string& name : reader.getAllRecords()) {
    const auto [bytes, size] = reader.getRecord(name);
    contents[name].assign(static_cast<const char*>(bytes.get()), size);
  }
  return contents;
}

Data packed(const Contents& contents) {
  std::vector<tool::ZipRecord> records;
  for (const auto& [name, text] : contents) records.push_back(tool::zip_record("m/" + name, text));
  return tool::zip(records);
}

std::vector<Original> originals() {
  at::manual_seed(4);
  std::vector<Original> all;
  const torch::jit::ExtraFilesMap note{{"note.txt", "hello"}};
  const auto add = [&](const std::string& name, Module module, const torch::jit::ExtraFilesMap& extra) {
    all.push_back(original(name, tool::saved(module, extra)));
    tailor::fuse(module);
    all.push_back(original(name + ", fused", tool::saved(module, extra)));
  };
  add("every chain", with(parts("Net", at::kFloat), every_chain), note);
  add("one chain", with(parts("Net", at::kBFloat16), one_chain), {});
  add("nested", nested(), note);
  return all;
}

}  // namespace tailor::fuzz
