#include "tables.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>
#include <vector>

#include "../passes/objects.h"
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

const char* kind_of(const c10::ClassType& type, const std::string& place) {
  const auto slot = type.is_module() ? type.findAttributeSlot(place) : std::nullopt;
  if (!slot) return "attribute";
  return type.is_parameter(*slot) ? "parameter" : type.is_buffer(*slot) ? "buffer" : "attribute";
}

// By name, as state_dict would have them, and each with what it is.
void collect(const torch::jit::Module& module, std::vector<std::array<std::string, 4>>& rows) {
  for (const auto& [path, object] : objects_in(module))
    for_each_held(*object, [&, &at = path, type = object->type()](const Held& held) {
      if (!held.value.isTensor() || !held.value.toTensor().defined()) return;
      const at::Tensor& tensor = held.value.toTensor();
      rows.push_back({printable(beneath(at, held.place)), kind_of(*type, held.place),
                      c10::getDtypeNames(tensor.scalar_type()).first, shape_of(tensor)});
    });
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
  collect(module, rows);
  return rows.size() == 1 ? "no parameters or buffers\n" : aligned(rows);
}

}  // namespace tailor::tool
