#include "tables.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>
#include <vector>

#include "failure.h"

namespace tailor::tool {
namespace {

// Columns as wide as their widest cell; the last one as it comes.
template <std::size_t Columns>
std::string aligned(const std::vector<std::array<std::string, Columns>>& rows) {
  std::array<std::size_t, Columns> widths{};
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < Columns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < Columns; ++i) {
      text += row[i];
      if (i + 1 < Columns) text.append(widths[i] - row[i].size() + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : printable(text); }

std::string shape_of(const at::Tensor& tensor) {
  std::string text = "[";
  for (const auto size : tensor.sizes()) text += (text.size() > 1 ? "," : "") + std::to_string(size);
  return text + "]";
}

// By name, as state_dict would have them, and each with what it is.
void collect(const torch::jit::Module& module, const std::string& prefix,
             std::vector<std::array<std::string, 4>>& rows) {
  const auto& object = *module._ivalue();
  const auto& type = *object.type();
  for (std::size_t i = 0; i < type.numAttributes(); ++i) {
    const c10::IValue& value = object.getSlot(i);
    const std::string name = prefix + type.getAttributeName(i);
    if (value.isModule()) collect(value.toModule(), name + ".", rows);
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& tensor = value.toTensor();
    const char* kind = type.is_parameter(i) ? "parameter" : type.is_buffer(i) ? "buffer" : "attribute";
    rows.push_back({printable(name), kind, c10::getDtypeNames(tensor.scalar_type()).first, shape_of(tensor)});
  }
}

}  // namespace

std::string site_table(const Report& report, const std::string& done, const Report& before) {
  if (report.sites.empty()) return "no linear in any method\n";
  using Place = std::tuple<std::string, std::string, std::string>;
  std::set<Place> already;
  for (const Site& site : before.sites) already.emplace(site.rule, site.method, site.source);
  std::vector<std::array<std::string, 5>> rows{{"site", "rule", "method", "source", "result"}};
  std::size_t fused = 0, were = 0;
  for (const Site& site : report.sites) {
    const bool was = site.fused && already.contains({site.rule, site.method, site.source});
    were += was;
    fused += site.fused && !was;
    const std::string result = was ? "is fused" : site.fused ? done : "left: " + printable(site.reason);
    rows.push_back(
        {std::to_string(rows.size()), or_dash(site.rule), or_dash(site.method), or_dash(site.source), result});
  }
  std::string sum = done + " " + std::to_string(fused) + " of " + std::to_string(report.sites.size()) + " sites";
  if (were != 0) sum += ", " + std::to_string(were) + (were == 1 ? " is" : " are") + " fused already";
  return aligned(rows) + sum + "\n";
}

std::string tensor_table(const torch::jit::Module& module) {
  std::vector<std::array<std::string, 4>> rows{{"tensor", "kind", "dtype", "shape"}};
  collect(module, "", rows);
  return rows.size() == 1 ? "no parameters or buffers\n" : aligned(rows);
}

}  // namespace tailor::tool
