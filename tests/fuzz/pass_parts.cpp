#include "pass_parts.h"

namespace tailor::fuzz {
namespace {

using Kind = Attribute::Kind;
using Values = Attribute::Values;

constexpr const char* verify = R"py(
def verify_batch_size(self, size: List[int]):
    size_prods = size[0]
    for i in range(len(size) - 2):
        size_prods *= size[i + 2]
    if size_prods == 1:
        raise Exception("Expected more than 1 value per channel when training, got input size {}".format(size))
)py";

constexpr const char* check_dimensions = R"py(
def check_input_dim(self, input):
    if input.dim() != 2 and input.dim() != 3:
        raise Exception("expected 2D or 3D input (got {}D input)".format(input.dim()))
)py";

constexpr const char* count_batch = R"py(
    if self.training:
        self.num_batches_tracked.add_(1)
)py";

std::shared_ptr<Class> part(std::string name, const char* file, std::string text) {
  auto type = std::make_shared<Class>();
  type->name = std::move(name);
  type->file = std::string("torch/nn/modules/") + file;
  type->part = std::move(text);
  return type;
}

void add_tensor(Class& type, const char* name, Kind kind, std::vector<std::int64_t> shape, bool gradient,
                Values values = Values::normal) {
  Attribute attribute;
  attribute.name = name;
  attribute.kind = kind;
  attribute.shape = std::move(shape);
  attribute.gradient = gradient;
  attribute.values = values;
  type.attributes.push_back(std::move(attribute));
}

void add_number(Class& type, const char* name, Kind kind, double number) {
  Attribute attribute;
  attribute.name = name;
  attribute.kind = kind;
  attribute.number = number;
  type.attributes.push_back(std::move(attribute));
}

// What torch.nn leaves out it holds as None.
void add_nothing(Class& type, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    Attribute attribute;
    attribute.name = name;
    attribute.kind = Kind::nothing;
    type.attributes.push_back(std::move(attribute));
  }
}

void add_affine(Class& type, bool affine, std::int64_t channels, bool gradient) {
  if (!affine) return add_nothing(type, {"weight", "bias"});
  add_tensor(type, "weight", Kind::parameter, {channels}, gradient, Values::positive);
  add_tensor(type, "bias", Kind::parameter, {channels}, gradient);
}

}  // namespace

ClassPtr linear_part(std::int64_t in, std::int64_t out, bool bias, bool gradient) {
  const auto type = part(bias ? "Linear" : "LinearWithoutBias", "linear.py",
                         "def forward(self, input):\n    return torch.linear(input, self.weight, self.bias)\n");
  add_tensor(*type, "weight", Kind::parameter, {out, in}, gradient);
  if (bias)
    add_tensor(*type, "bias", Kind::parameter, {out}, gradient);
  else
    add_nothing(*type, {"bias"});
  return type;
}

ClassPtr batch_norm_part(std::int64_t channels, const BatchNormForm& form) {
  std::string name = "BatchNorm1d";
  std::string text = std::string(verify) + check_dimensions;
  text += "def forward(self, input):\n    self.check_input_dim(input)\n";
  text += form.cumulative ? "    factor = 0.0" : "    factor = self.momentum";
  if (form.statistics) text += count_batch;
  if (form.statistics && form.cumulative) text += "        factor = 1.0 / float(self.num_batches_tracked)\n";
  text += form.statistics ? "    training = self.training\n" : "\n    training = True\n";
  text += "    if training:\n        self.verify_batch_size(input.size())\n    return torch.batch_norm(input, ";
  text += "self.weight, self.bias, self.running_mean, self.running_var, training, factor, self.eps, True)\n";
  if (!form.affine) name += "Bare";
  if (!form.statistics) name += "Stateless";
  if (form.cumulative) name += "Cumulative";

  const auto type = part(std::move(name), "batchnorm.py", std::move(text));
  add_affine(*type, form.affine, channels, form.gradient);
  if (form.statistics) {
    add_tensor(*type, "running_mean", Kind::buffer, {channels}, false);
    add_tensor(*type, "running_var", Kind::buffer, {channels}, false, Values::positive);
    add_tensor(*type, "num_batches_tracked", Kind::buffer, {}, false, Values::counter);
  } else {
    add_nothing(*type, {"running_mean", "running_var", "num_batches_tracked"});
  }
  add_number(*type, "momentum", Kind::number, 0.1);
  add_number(*type, "eps", Kind::number, 1e-3);
  return type;
}

ClassPtr group_norm_part(std::int64_t channels, std::int64_t groups, bool affine, bool gradient) {
  const std::string text =
      std::string(verify) +
      "def forward(self, input):\n"
      "    if input.dim() < 2:\n"
      "        raise Exception(\"Expected at least 2D input\")\n"
      "    self.verify_batch_size([input.size(0) * input.size(1) // self.num_groups, self.num_groups] + "
      "input.size()[2:])\n"
      "    return torch.group_norm(input, self.num_groups, self.weight, self.bias, self.eps, True)\n";
  const auto type = part(affine ? "GroupNorm" : "GroupNormBare", "normalization.py", text);
  add_affine(*type, affine, channels, gradient);
  add_number(*type, "num_groups", Kind::integer, static_cast<double>(groups));
  add_number(*type, "eps", Kind::number, 1e-3);
  return type;
}

// The question is asked of a constant once calls are inlined, not before.
ClassPtr dropout_part() {
  return part("Dropout", "dropout.py", R"py(
def dropout(self, input, p: float):
    if p < 0.0 or p > 1.0:
        raise Exception("dropout probability has to be between 0 and 1, but got {}".format(p))
    return torch.dropout(input, p, self.training)
def forward(self, input):
    return self.dropout(input, 0.5)
)py");
}

ClassPtr silu_part() {
  return part("SiLU", "activation.py", "def forward(self, input):\n    return torch.silu(input)\n");
}

ClassPtr sigmoid_part() {
  return part("Sigmoid", "activation.py", "def forward(self, input):\n    return torch.sigmoid(input)\n");
}

}  // namespace tailor::fuzz
