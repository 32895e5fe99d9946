#include "pass_spell.h"

#include <algorithm>

#include "pass_parts.h"
#include "pass_speller.h"

namespace tailor::fuzz {
namespace {

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {"linear_mul_batch_norm", {Step::mul, Step::batch_norm}},
      {"linear_sigmoid_mul_add", {Step::sigmoid, Step::mul, Step::residual}},
      {"linear_add_swish_group_norm", {Step::add, Step::swish, Step::group_norm}},
      {"linear_swish_add_group_norm", {Step::swish, Step::add, Step::group_norm}},
      {"linear_batch_norm_add_div_swish", {Step::batch_norm, Step::add, Step::div, Step::swish}},
      {"linear_group_norm_swish_mul_swish", {Step::group_norm, Step::swish, Step::mul, Step::swish}}};
  return all;
}

}  // namespace

std::vector<std::string> planted_rules() {
  std::vector<std::string> names;
  for (const Rule& rule : rules()) names.emplace_back(rule.name);
  std::sort(names.begin(), names.end());
  return names;
}

void disturb(Chain& chain, Fate fate, const std::string& what) {
  chain.fate = std::max(chain.fate, fate);
  chain.disturbed.push_back(what);
}

Planted spell(Scope& scope, const std::string& input, std::int64_t in, const std::string& other_input,
              std::int64_t other_in, bool twisted) {
  return Speller(scope, input, in, other_input, other_in).write(twisted);
}

Speller::Speller(Scope& scope, std::string input, std::int64_t in, std::string other_input, std::int64_t other_in)
    : s_(scope), r_(scope.random), in_(in), other_input_(std::move(other_input)), other_in_(other_in) {
  out_.input = std::move(input);
}

Planted Speller::write(bool twisted) {
  const Rule& rule = r_.of(rules());
  out_.chain = static_cast<int>(s_.model.chains.size());
  s_.model.chains.push_back({rule.name, Fate::fuses, {}});
  is_residual_ = rule.steps.front() == Step::sigmoid;
  const std::size_t twist = twisted ? r_.below(rule.steps.size()) : rule.steps.size();
  name_ = s_.fresh("y");
  linear();
  for (std::size_t i = 0; i < rule.steps.size(); ++i) {
    if (is_residual_ && i == 0) keep_residual();
    const bool before = i == twist && r_.chance(0.4);
    if (before) twist_before();
    step(rule.steps[i], i == twist && !before);
    if (i + 1 < rule.steps.size() && r_.chance(0.5)) bind();
  }
  if (!bound_) {
    name_ = s_.fresh("r");
    emit(name_ + " = " + value_);
    value_ = name_;
  }
  out_.result = value_;
  return std::move(out_);
}

void Speller::emit(std::string line) {
  Gap gap{bound_ ? value_ : "", before_bias_, after_norm_, out_.operands.size()};
  out_.statements.push_back({std::move(line), site_pending_, std::move(gap)});
  site_pending_ = false;
  bias_apart_ = false;
}

void Speller::bind() {
  if (bound_) return;
  const std::string name = is_residual_ || r_.chance(0.5) ? s_.fresh("y") : name_;
  const std::string line = name + " = " + value_;
  value_ = name;
  bound_ = true;
  emit(line);
}

void Speller::set(std::string expression) {
  value_ = std::move(expression);
  bound_ = false;
}

std::string Speller::attribute(const char* prefix, std::vector<std::int64_t> shape) {
  std::string key = prefix;
  for (const auto size : shape) key += " " + std::to_string(size);
  auto& others = s_.shared[key];
  const double draw = r_.uniform();
  if (!others.empty() && draw < 0.15) return "self." + r_.of(others);
  if (const auto there = draw < 0.25 ? s_.paths_to(shape) : std::vector<std::string>(); !there.empty())
    return known(r_.of(there));
  others.push_back(s_.tensor(prefix, std::move(shape)));
  s_.paths.push_back(others.back());
  return "self." + others.back();
}

// A tensor that is another operand too, or a submodule's own: by its path, or under another name.
std::string Speller::known(const std::string& path) {
  const std::string direct = "self." + path;
  if (r_.chance(0.5)) {
    disturb(chain(), Fate::fuses, "one tensor under two names");
    return "self." + s_.another_name(path);
  }
  disturb(chain(), Fate::fuses,
          path.find('.') == path.npos ? "one tensor as two operands" : "a submodule's tensor as an operand");
  return direct;
}

void Speller::linear() {
  const std::int64_t out = s_.model.sizes.out;
  const std::string& x = out_.input;
  site_pending_ = true;
  const bool bias = r_.chance(0.7);
  if (r_.chance(0.3)) {
    const auto there = r_.chance(0.15) ? s_.paths_to({out, in_}) : std::vector<std::string>();
    const std::string child = s_.child("gemm", linear_part(in_, out, bias, r_.chance(0.7)));
    if (!there.empty()) {
      s_.type.children.back().same = r_.of(there);
      disturb(chain(), Fate::fuses, "one tensor under two names");
    }
    read(x);
    read("self." + child + ".weight");
    if (bias) read("self." + child + ".bias");
    set("self." + child + ".forward(" + x + ")");
    if (!bias && r_.chance(0.2)) add_bias(attribute("b", {out}));
  } else {
    const bool alone = r_.chance(0.05);
    const std::string w = alone ? "self." + s_.tensor("w", {out, in_}) : attribute("w", {out, in_});
    const std::string b = bias ? attribute("b", {out}) : "";
    if (!alone && r_.chance(0.4)) {
      read(x);
      read(w);
      const bool in_one = bias && r_.chance(0.7);
      if (in_one) read(b);
      set("torch.linear(" + x + ", " + w + (in_one ? ", " + b : r_.text({"", ", None"})) + ")");
      if (bias && !in_one) add_bias(b);
    } else {
      product(x, w, b, alone);
    }
  }
  if (is_residual_ || r_.chance(0.5)) bind();
}

// The weight's transpose, where the product reads it or some statements before. `alone`: nobody else has the weight, so that it may
// be changed in between: what the product reads is a view of what the weight has been.
std::string Speller::transposed(const std::string& w, bool alone) {
  const std::string text = w + r_.text({".t()", ".t()", ".T", ".mT", ".transpose(0, 1)", ".transpose(1, 0)",
                                        ".transpose(-1, -2)", ".transpose(-2, -1)", ".transpose(0, -1)",
                                        ".transpose(1, -2)", ".permute(1, 0)", ".permute([1, 0])"});
  if (!alone && !r_.chance(0.2)) return text;
  const std::string name = s_.fresh("turned");
  const auto put = [&](const std::string& line) { out_.statements.push_back({line, false, Gap()}); };
  put(name + " = " + text);
  either("a weight transposed before its product");  // with anything in between
  if (!alone) return name;
  const std::string change = r_.text({".t_()", ".detach_()", ".requires_grad_(False)", ".unsqueeze_(0)", ".mul_(0.9)"});
  put(w + change);
  if (change == ".t_()") put(w + change);
  if (change == ".unsqueeze_(0)") put(w + ".squeeze_(0)");
  stays("a weight changed behind its transpose");
  return name;
}

void Speller::product(const std::string& x, const std::string& w, const std::string& b, bool alone) {
  const std::string turned = transposed(w, alone);
  read(x);
  read(w);
  if (!b.empty() && r_.chance(0.3)) {
    read(b);
    const bool scaled = r_.chance(0.04);
    if (scaled) stays("addmm with alpha or beta");
    set("torch.addmm(" + b + ", " + x + ", " + turned + (scaled ? r_.text({", beta=2", ", alpha=0.5"}) : "") + ")");
    return;
  }
  set(r_.of<std::string>({"torch.mm(" + x + ", " + turned + ")", "torch.matmul(" + x + ", " + turned + ")",
                          x + ".matmul(" + turned + ")", "(" + x + " @ " + turned + ")"}));
  if (!b.empty()) add_bias(b);
}

void Speller::add_bias(const std::string& b) {
  before_bias_ = true;
  if (r_.chance(0.3)) bind();
  bias_apart_ = bound_;
  before_bias_ = false;
  read(b);
  if (r_.chance(0.2))
    write_in_place("add_", "+", b);
  else
    set(r_.chance(0.3) ? "(" + b + " + " + value_ + ")" : "(" + value_ + " + " + b + ")");
}

// `y` is read twice; its second reader may know it under another name.
void Speller::keep_residual() {
  bind();
  residual_ = value_;
  if (!r_.chance(0.3)) return;
  residual_ = s_.fresh("kept");
  emit(residual_ + " = " + value_);
}

}  // namespace tailor::fuzz
