#include "pass_plant.h"

#include <algorithm>
#include <iomanip>

#include "pass_workers.h"
#include "random.h"

namespace tailor::fuzz {

const std::vector<Fault>& all_faults() {
  static const std::vector<Fault> faults = {
      {"result", "a result is a thousandth too large", Kind::wrong, ": result "},
      {"results", "the last result is missing", Kind::wrong, ": another number of results"},
      {"dtype", "a result has another dtype", Kind::wrong, ": dtype "},
      {"shape", "a result has one dimension more", Kind::wrong, ": shape "},
      {"strides", "a result lies across", Kind::wrong, ": strides "},
      {"history", "a result has forgotten what it was made of", Kind::wrong, "does not want a gradient"},
      {"input", "the input is written to", Kind::wrong, ": the input afterwards: "},
      {"parameter", "a parameter is written to", Kind::wrong, ": element "},
      {"buffer", "a buffer is not written to", Kind::wrong, ": element "},
      {"gradient", "a parameter's gradient is a tenth too large", Kind::wrong, ": gradient of "},
      {"no-gradient", "a parameter's gradient is missing", Kind::wrong, ": is missing"},
      {"input-gradient", "the input's gradient is a tenth too large", Kind::wrong, ": gradient of the input: "},
      {"lost-error", "an exception does not come", Kind::wrong, ": raised '' instead of '"},
      {"new-error", "an exception comes that there is none of", Kind::wrong, ": raised 'planted' instead of ''"},
      {"text", "an exception's text has one letter more", Kind::wrong, "!' instead of '"},
      {"missed", "no chain is left fused", Kind::missed, ""},
      {"misplaced", "the pass is said to have left alone what it need not fuse", Kind::missed,
       ", which the pass leaves alone"},
      {"crash", "the process ends", Kind::crashed, ""},
  };
  return faults;
}

const Fault* find_fault(const std::string& name) {
  const auto found = std::ranges::find(all_faults(), name, &Fault::name);
  return found == all_faults().end() ? nullptr : &*found;
}

void plant(Model& model, const Fault& fault) {
  model.plant = fault.name;
  model.plant_door = all_doors[Random(mixed(model.seed, "plant")).below(std::size(all_doors))];
  model.doors.clear();
  if (model.plant_door != Door::pass) model.doors.push_back(model.plant_door);
}

bool is_found(const Fault& fault, const Result& result, std::ostream& out) {
  const auto is_right = [&](const Failure& failure) {
    const Kind kind = failure.verdict.kind == Kind::elsewhere ? Kind::missed : failure.verdict.kind;
    return kind == fault.kind && failure.verdict.text.find(fault.words) != std::string::npos;
  };
  out << "planted: " << fault.what << "\n";
  constexpr std::int64_t few = 4;
  std::int64_t planted = 0, found = 0;
  bool each_door = true;
  for (const Door door : all_doors) {
    const auto spoiled = result.tally.numbers.find(std::string("models spoiled at door ") + to_string(door));
    if (spoiled == result.tally.numbers.end()) continue;
    const auto here = std::ranges::count_if(result.failures, [&](const Failure& failure) {
      return is_right(failure) && failure.verdict.text.starts_with(std::string("door ") + to_string(door) + ",");
    });
    out << "  " << std::left << std::setw(10) << to_string(door) << std::right << std::setw(6) << here << " found in"
        << std::setw(6) << spoiled->second << " models\n";
    planted += spoiled->second;
    found += here;
    each_door = each_door && (here > 0 || spoiled->second < few);
  }
  for (const Failure& failure : result.failures)
    if (!is_right(failure))
      out << "  otherwise: " << to_string(failure.verdict.kind) << ", model " << failure.model << ": "
          << failure.verdict.text << "\n";
  if (fault.kind == Kind::crashed) {  // what has crashed counts nothing
    const auto passed = result.tally.numbers.find("models");
    planted =
        static_cast<std::int64_t>(result.failures.size()) + (passed == result.tally.numbers.end() ? 0 : passed->second);
    found = std::ranges::count_if(result.failures, is_right);
  }
  out << found << " of " << planted << " found" << std::endl;
  // What a judge may not report, because the unfused model is no better, is a model here and there.
  constexpr std::int64_t fewest = 5, percent = 75;
  return each_door && planted >= fewest && 100 * found >= percent * planted;
}

}  // namespace tailor::fuzz
