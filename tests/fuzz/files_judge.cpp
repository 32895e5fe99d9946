#include "files_judge.h"

#include <ATen/ATen.h>
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "tools/commands.h"
#include "tools/load.h"
#include "tools/same_module.h"

namespace tailor::fuzz {
namespace {

using tool::Command;

struct Ended {
  int status = 0;
  std::string said;
};

Ended run(const std::string& input, const std::string& output, Command command) {
  tool::Request request;
  request.command = command;
  request.input = input;
  if (command != Command::inspect) request.output = output;
  std::ostringstream out;
  try {
    if (command == Command::inspect) tool::inspect(request, out);
    if (command == Command::fuse) tool::fuse(request, out);
    if (command == Command::unfuse) tool::unfuse(request, out);
  } catch (const tool::Failure& failure) {
    return {static_cast<int>(failure.exit), failure.what()};
  } catch (const std::exception& error) {
    return {1, tool::one_line(error)};
  }
  return {0, out.str()};
}

std::uint64_t status_of(const char* field) {  // in bytes
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(field)) return std::strtoull(line.c_str() + std::string(field).size() + 1, nullptr, 10) << 10;
  return 0;
}

// The records of a file, without the one that torch draws anew each time it writes.
Contents written(const std::string& path) {
  Contents contents = as_torch_reads(tool::get(path));
  contents.erase(".data/serialization_id");
  return contents;
}

std::string first_difference(const Contents& expected, const Contents& actual) {
  for (const auto& [name, text] : expected) {
    const auto found = actual.find(name);
    if (found == actual.end()) return "record " + name + " is missing";
    if (found->second != text) return "record " + name + " holds something else";
  }
  for (const auto& [name, text] : actual)
    if (!expected.contains(name)) return "record " + name + " is new";
  return {};
}

torch::jit::Module load(const std::string& path) {
  return tool::ModelFile(path, {}, tool::Trial::no).load(tool::Place::cpu);
}

// Memory is filled with another byte each time: what was not in the file is not the same twice.
std::string loads_alike(const std::string& path) {
  mallopt(M_PERTURB, 0x5a);
  const auto first = load(path);
  mallopt(M_PERTURB, 0xa7);
  const auto second = load(path);
  mallopt(M_PERTURB, 0);
  return tool::difference(first, second).value_or("");
}

bool same_values(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  if (a.numel() > 1 << 20 || a.is_quantized() || a.layout() != at::kStrided || a.is_meta())
    return true;  // too much to ask
  const auto x = a.detach(), y = b.detach();
  return (x.eq(y) | (x.ne(x) & y.ne(y))).all().item<bool>();
}

std::string keeps_tensors(const std::string& input, const std::string& output) {
  std::map<std::string, at::Tensor> values;
  const auto before = load(input), after = load(output);
  // Attributes, since torch does not see to it that what it reads for a parameter is a tensor.
  for (const auto& each : before.named_attributes())
    if (each.value.isTensor()) values[each.name] = each.value.toTensor();
  for (const auto& each : after.named_attributes()) {
    if (!each.value.isTensor()) continue;
    const auto old = values.find(each.name);
    if (old == values.end() || !same_values(old->second, each.value.toTensor()))
      return each.name + " comes out changed";
    values.erase(old);
  }
  return values.empty() ? "" : values.begin()->first + " is gone";
}

bool one_clear_line(const std::string& text, const std::string& path) {
  return text.starts_with(path + ": ") && text.size() < path.size() + 1000 &&
         tool::printable(text.substr(0, 300)) == text.substr(0, 300) && text.find('\n') == std::string::npos;
}

// Types that contradict their values, which torch notices only when it writes them. And code of a format before 4, where
// `/` meant something else: torch writes out what it meant, and simplifies that as it reads it back.
bool torch_cannot_save(const Mutant& mutant, const std::string& said) {
  if (said.find(": cannot be written: torch cannot save this module: ") != std::string::npos) return true;
  const bool other_code = said.find(" not written: what was read back differs: ") != std::string::npos &&
                          said.find(" calls ") != std::string::npos;
  return other_code && std::atoi(as_torch_reads(mutant.data).at("version").c_str()) < 4;
}

}  // namespace

Command command_for(std::uint64_t number) {
  constexpr Command commands[] = {Command::inspect, Command::fuse, Command::unfuse};
  return commands[number % 3];
}

const char* name_of(Command command) {
  return command == Command::inspect ? "inspect" : command == Command::fuse ? "fuse" : "unfuse";
}

Judge::Judge(const std::vector<Original>& all) : all_(all) {
  const std::string input = folder_ / "model.pt", output = folder_ / "out.pt";
  for (const Original& original : all_) {
    for (std::uint64_t i = 0; i < 3; ++i) {
      const Command command = command_for(i);
      tool::put(input, original.data);
      const Ended ended = run(input, output, command);
      if (ended.status != 0) throw std::runtime_error(std::string("an original is refused: ") + ended.said);
      expected_[{&original, command}] = {ended.said, command == Command::inspect ? Contents() : written(output)};
      unlink(output.c_str());
    }
  }
}

Finding Judge::operator()(const Mutant& mutant, Command command) const {
  const std::string input = folder_ / "model.pt", output = folder_ / "out.pt";
  for (const std::string& name : folder_.names()) unlink((folder_ / name).c_str());  // also what a crash has left
  tool::put(input, mutant.data);
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak counts from here
  const std::uint64_t before = status_of("VmHWM:");
  const Ended ended = run(input, output, command);
  Finding finding{"FAILED", ended.said, 0};
  if (const std::uint64_t after = status_of("VmHWM:"); after > before) finding.peak = after - before;
  const auto failed = [&](const std::string& why) {
    finding.message = why + (ended.said.empty() || ended.status == 0 ? "" : ": " + ended.said);
    return finding;
  };

  // The command and torch in it; what the trial takes has limits of its own.
  const std::uint64_t most = (64 << 20) + 16 * mutant.data.size() + 48 * mutant.held;
  if (finding.peak > most)
    return failed("it used " + std::to_string(finding.peak >> 20) + " MiB, of which " + std::to_string(most >> 20) +
                  " would do");
  const bool wrote = ended.status == 0 && command != Command::inspect;
  const std::vector<std::string> left = folder_.names();
  if (left != (wrote ? std::vector<std::string>{"model.pt", "out.pt"} : std::vector<std::string>{"model.pt"}))
    return failed("the folder holds other files than it should");
  if (ended.status == 1) return failed("a fault in Tailor");
  if (ended.status != 0) {
    const bool unreadable = ended.status == static_cast<int>(tool::Exit::unreadable);
    const bool unverified = ended.status == static_cast<int>(tool::Exit::verification);
    if (!mutant.covered && ended.status == static_cast<int>(tool::Exit::not_written) &&
        one_clear_line(ended.said, output) && torch_cannot_save(mutant, ended.said)) {
      finding.outcome = "not to be saved";
      return finding;
    }
    if (!one_clear_line(ended.said, input)) return failed("no clear line that names the file");
    if (!unreadable && (mutant.covered || !unverified)) return failed("status " + std::to_string(ended.status));
    finding.outcome = unreadable ? "refused" : "not verified";
    return finding;
  }
  try {
    if (mutant.covered) {
      const Expected& expected = expected_.at({mutant.from, command});
      std::string wrong = first_difference(mutant.from->contents, as_torch_reads(mutant.data));
      if (wrong.empty() && wrote) wrong = first_difference(expected.output, written(output));
      if (wrong.empty() && ended.said != expected.said) wrong = "it is reported otherwise";
      if (!wrong.empty()) return failed("accepted with changes: " + wrong);
      finding.outcome = "read, the same";
    } else {
      std::string wrong = loads_alike(input);
      if (!wrong.empty()) return failed("not the same model each time it is loaded: " + wrong);
      if (wrote) wrong = keeps_tensors(input, output);
      if (!wrong.empty()) return failed("written with changes: " + wrong);
      finding.outcome = "read, a model";
    }
  } catch (const std::exception& error) {
    return failed("accepted, and then not to be read: " + tool::one_line(error));
  }
  return finding;
}

}  // namespace tailor::fuzz
