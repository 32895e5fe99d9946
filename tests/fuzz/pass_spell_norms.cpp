// The norms at the end or in the middle of a chain.
#include "pass_parts.h"
#include "pass_speller.h"

namespace tailor::fuzz {
namespace {

using Kind = Attribute::Kind;
using Values = Attribute::Values;

}  // namespace

void Speller::batch_norm(bool twisted) {
  const std::int64_t n = s_.model.sizes.out;
  if (twisted) {
    stays("another norm");
    return set(r_.chance(0.5) ? "torch.layer_norm(" + value_ + ", [" + std::to_string(n) + "])"
                              : "torch.group_norm(" + value_ + ", " + std::to_string(s_.model.sizes.groups) + ")");
  }
  if (r_.chance(0.5)) {
    BatchNormForm form;
    form.affine = r_.chance(0.8);
    form.statistics = r_.chance(0.85);
    form.cumulative = form.statistics && r_.chance(0.15);
    form.gradient = r_.chance(0.8);
    const std::string child = s_.child("bn", batch_norm_part(n, form));
    for (const char* name : {"weight", "bias"})
      if (form.affine) read("self." + child + "." + name);
    for (const char* name : {"running_mean", "running_var"})
      if (form.statistics) read("self." + child + "." + name);
    return set("self." + child + ".forward(" + value_ + ")");
  }
  std::string text = "torch.batch_norm(" + value_;
  if (r_.chance(0.7)) {
    const std::string gamma = attribute("gamma", {n}), beta = attribute("beta", {n});
    read(gamma);
    read(beta);
    text += ", " + gamma + ", " + beta;
  } else {
    text += ", None, None";
  }
  std::string training = r_.text({"self.training", "self.training", "True", "False"});
  if (r_.chance(0.8)) {
    const std::string mean = "self." + s_.buffer("mean", {n});
    const std::string var = "self." + s_.buffer("var", {n}, Values::positive);
    read(mean);
    read(var);
    text += ", " + mean + ", " + var;
  } else {
    text += ", None, None";
    training = "True";
  }
  text += ", " + training + ", " +
          r_.of<std::string>({"0.1", "0.3", "self." + s_.value("momentum", Kind::number, 0.2)}) + ", 0.001, " +
          r_.text({"True", "False"}) + ")";
  set(text);
}

void Speller::group_norm(bool twisted) {
  const std::int64_t n = s_.model.sizes.out;
  const std::string groups = std::to_string(s_.model.sizes.groups);
  if (twisted) {
    stays("another norm");
    return set(r_.chance(0.5) ? "torch.layer_norm(" + value_ + ", [" + std::to_string(n) + "])"
                              : "torch.batch_norm(" + value_ + ", None, None, None, None, True, 0.1, 0.001, True)");
  }
  if (r_.chance(0.5)) {
    const bool affine = r_.chance(0.8);
    const std::string child = s_.child("gn", group_norm_part(n, s_.model.sizes.groups, affine, r_.chance(0.8)));
    for (const char* name : {"weight", "bias"})
      if (affine) read("self." + child + "." + name);
    return set("self." + child + ".forward(" + value_ + ")");
  }
  std::string text = "torch.group_norm(" + value_ + ", " + groups;
  if (r_.chance(0.7)) {
    const std::string gamma = attribute("gamma", {n}), beta = attribute("beta", {n});
    read(gamma);
    read(beta);
    text += ", " + gamma + ", " + beta + r_.text({"", ", 0.001", ", 0.01, False"});
  } else {
    text += r_.text({"", ", None, None", ", None, None, 0.001", ", eps=0.002"});
  }
  set(text + ")");
}

}  // namespace tailor::fuzz
