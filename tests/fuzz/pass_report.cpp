#include "pass_report.h"

#include <iomanip>

namespace tailor::fuzz {
namespace {

using PerName = std::map<std::string, Count>;

// For a person: how far over to the next column; letters of several bytes count once.
std::size_t width_of(const std::string& text) {
  std::size_t width = 0;
  for (const char c : text) width += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return width;
}

void print(std::ostream& out, const char* title, const PerName& counts) {
  std::size_t width = width_of(title);
  for (const auto& [key, count] : counts) width = std::max(width, width_of(key));
  const auto padded = [&](const std::string& text) { return text + std::string(width - width_of(text), ' '); };
  out << padded(title) << "   planted     fused   refused     wrong    missed\n";
  for (const auto& [key, c] : counts) {
    out << padded(key);
    for (const auto n : {c.planted, c.fused, c.refused, c.wrong, c.missed}) out << std::setw(10) << n;
    out << "\n";
  }
  out << "\n";
}

Table table(const PerName& counts) {
  Table table;
  for (const auto& [key, c] : counts)
    table[key] = {
        {"planted", c.planted}, {"fused", c.fused}, {"refused", c.refused}, {"wrong", c.wrong}, {"missed", c.missed}};
  return table;
}

}  // namespace

void print_tables(std::ostream& out, const Tally& tally) {
  print(out, "chains of the rule", tally.by_rule);
  print(out, "disturbed by", tally.by_disturbance);
  print(out, "refused because", tally.by_reason);
  print(out, "by another door", tally.by_door);
  for (const auto& [key, number] : tally.numbers) out << std::setw(10) << number << " " << key << "\n";
}

Record record_of(const std::string& command, const Result& result) {
  Record record;
  record.title = "Models through the pass";
  record.what =
      "random TorchScript models with planted and disturbed chains compute the same unfused and fused, through every "
      "door, and no chain that is safe is missed";
  record.command = command;
  record.seconds = result.seconds;
  record.counts = result.tally.numbers;
  record.tables = {{"by rule", table(result.tally.by_rule)},
                   {"by disturbance", table(result.tally.by_disturbance)},
                   {"by reason", table(result.tally.by_reason)},
                   {"by another door", table(result.tally.by_door)}};
  record.failures = static_cast<std::int64_t>(result.failures.size());
  return record;
}

}  // namespace tailor::fuzz
