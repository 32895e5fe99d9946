#include "verify.h"

#include <ATen/CPUGeneratorImpl.h>

#include <map>

#include "inputs.h"

namespace tailor::tool {
namespace {

std::string count(std::size_t n, const std::string& thing) {
  return std::to_string(n) + " " + thing + (n == 1 ? "" : "s");
}

std::string place(const Site& site) { return site.method + " " + site.source + " (" + site.rule + ")"; }

std::vector<c10::IValue> described_inputs(const VerifyOptions& options) {
  if (!options.input_file.empty()) return read_inputs(options.input_file);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(options.seed);
  std::vector<c10::IValue> inputs;
  for (const auto& text : options.inputs) {
    const InputText input = parse_input(text);
    inputs.push_back(input.number.isNone() ? c10::IValue(sample(input, generator)) : input.number);
  }
  return inputs;
}

std::vector<c10::IValue> whole_model_inputs(const torch::jit::Module& model, const VerifyOptions& options) {
  auto inputs = described_inputs(options);
  const auto forward = model.find_method("forward");
  if (!forward) return inputs;
  const auto& arguments = forward->function().getSchema().arguments();  // the first of them is the module
  for (std::size_t i = 0; i < inputs.size() && i + 1 < arguments.size(); ++i)
    inputs[i] = fitted(inputs[i], arguments[i + 1].type());
  return inputs;
}

}  // namespace

Verdict verify(const torch::jit::Module& original, const torch::jit::Module& fused,
               const std::vector<Specimen>& specimens, const VerifyOptions& options) {
  const auto inputs = whole_model_inputs(original, options);  // first: a mistyped input should not cost minutes
  const bool whole_model = !options.inputs.empty() || !options.input_file.empty();
  const std::size_t steps = specimens.size() + (whole_model ? 1 : 0);
  const auto progress = [&](std::size_t done, const std::string& what) {
    if (options.progress) options.progress(done, steps, what);
  };

  std::map<std::string, std::size_t> unchecked;  // by reason
  std::size_t checked = 0;
  for (std::size_t i = 0; i < specimens.size(); ++i) {
    const auto& specimen = specimens[i];
    progress(i, "site " + place(specimen.site));
    const auto verdict = verify_site(original, specimen, options.seed + i);
    if (!verdict.ok) return {false, "site " + place(specimen.site) + ": " + verdict.message};
    if (verdict.message.empty())
      ++checked;
    else
      ++unchecked[verdict.message];
  }
  // Of a class once, however many of its modules are sites; and a part's also where its caller has it.
  std::string message = count(checked, "chain") + " checked by themselves";
  if (checked == 1) message = "1 chain checked by itself";
  for (const auto& [reason, chains] : unchecked) message += ", " + count(chains, "chain") + " not (" + reason + ")";

  if (whole_model) {
    progress(specimens.size(), "the whole model");
    const auto verdict = verify_model(original, fused, inputs, options.seed);
    if (!verdict.ok) return {false, "the whole model: " + verdict.message};
    message += ", the whole model checked" + (verdict.message.empty() ? "" : " (" + verdict.message + ")");
  } else {
    message += ", the whole model not (describe its arguments with --input)";
  }
  progress(steps, whole_model ? "the whole model" : "chains");
  return {true, message};
}

}  // namespace tailor::tool
