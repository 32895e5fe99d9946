// fuzz_files: mutants of model files through what `tailor inspect`, `fuse` and `unfuse` do.
//   fuzz_files --count 100000 --seed 1 --json files.json
//   fuzz_files --only 4711 --keep DIR      one mutant again, and its file in DIR
#include <ATen/Parallel.h>
#include <unistd.h>

#include <iostream>

#include "files_server.h"
#include "program.h"
#include "tools/progress.h"

namespace {

using namespace tailor::fuzz;

// What still fails after as many steps as possible are left out.
std::uint64_t minimised(const std::vector<Original>& all, const Judge& judge, const Limits& limits, std::uint64_t seed,
                        std::uint64_t number) {
  std::uint64_t leave_out = 0;
  const std::size_t steps = make(all, seed, number).steps.size();
  for (std::size_t step = 0; step < steps; ++step) {
    const std::uint64_t without = leave_out | std::uint64_t{1} << step;
    const auto work = [&](std::uint64_t) { return judge(make(all, seed, number, without), command_for(number)); };
    serve(0, 1, limits, work, [&](std::uint64_t, const Finding& finding) {
      if (finding.failed()) leave_out = without;
      return true;
    });
  }
  return leave_out;
}

void report(const Mutant& mutant, const Finding& finding, std::uint64_t seed, std::uint64_t number,
            const std::string& keep) {
  const std::string path = keep + "/mutant-" + std::to_string(seed) + "-" + std::to_string(number) + ".pt";
  tailor::tool::put(path, mutant.data);
  std::cout << (finding.failed() ? "FAILED: " : finding.outcome + ": ") << finding.message << "\n  tailor "
            << name_of(command_for(number)) << ' ' << path << "\n  " << mutant.from->name << ", " << mutant.kind
            << '\n';
  for (const std::string& step : mutant.steps)
    if (!step.empty()) std::cout << "    " << step << '\n';
  std::cout << "  again: fuzz_files --seed " << seed << " --only " << number << std::endl;
}

void print_table(const Table& table) {
  const char* const columns[] = {"refused",        "not verified",  "not to be saved",
                                 "read, the same", "read, a model", "FAILED"};
  std::printf("%-42s", "");
  for (const char* column : columns) std::printf("%16s", column);
  for (const auto& [kind, counts] : table) {
    std::printf("\n%-42s", kind.c_str());
    for (const char* column : columns)
      std::printf("%16lld", static_cast<long long>(counts.contains(column) ? counts.at(column) : 0));
  }
  std::printf("\n");
}

}  // namespace

int main(int count, char** words) {
  const Arguments arguments(count, words, {{"count", "5000"}, {"only", "-1"}, {"keep", "."}});
  const bool one = arguments.number("only") >= 0;
  // Thousands of files are written and synced: to memory, where there is such a place.
  if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", /*overwrite=*/0);
  at::set_num_threads(1);  // workers are forks
  const Clock clock;
  const std::vector<Original> all = originals();
  const Judge judge(all);
  const Limits limits;
  const std::uint64_t seed = arguments.seed();
  const auto work = [&](std::uint64_t number) { return judge(make(all, seed, number), command_for(number)); };

  Record record;
  Table& table = record.tables["by kind"];
  std::uint64_t peak = 0;
  tailor::tool::Progress progress;
  const auto begin = static_cast<std::uint64_t>(one ? arguments.number("only") : 0);
  const auto count_or_all = arguments.count() == 0 ? ~std::uint64_t{0} : static_cast<std::uint64_t>(arguments.count());
  const std::uint64_t end = one ? begin + 1 : count_or_all;
  serve(begin, end, limits, work, [&](std::uint64_t number, const Finding& finding) {
    Mutant mutant = make(all, seed, number);
    ++table[mutant.kind][finding.outcome];
    ++record.counts["mutants"];
    ++record.counts[finding.outcome];
    peak = std::max(peak, finding.peak);
    if (finding.failed()) {
      progress.clear();
      ++record.failures;
      mutant = make(all, seed, number, minimised(all, judge, limits, seed, number));
    }
    if (finding.failed() || one) report(mutant, finding, seed, number, arguments.text("keep"));
    progress.show("mutants, " + std::to_string(record.failures) + " failed", number + 1, arguments.count());
    return arguments.seconds() <= 0 || clock.seconds() < arguments.seconds();
  });
  progress.clear();
  print_table(table);

  record.title = "Mutants of model files";
  record.what =
      "Damaged and forged model files through `tailor inspect`, `fuse` and `unfuse`: refused with one line that names "
      "the "
      "file, or read as what they are; no crash, no hang, nothing else left in the folder, and no more memory than 64 "
      "MiB, "
      "16 bytes for each of the file's and 48 for each of a pickle that it has compressed.";
  record.command = arguments.command();
  record.seconds = clock.seconds();
  if (!one) record.asked = {{"mutants", arguments.count()}};
  record.counts["originals"] = static_cast<std::int64_t>(all.size());
  record.counts["largest memory of one mutant, MiB"] = static_cast<std::int64_t>(peak >> 20);
  std::printf("%lld mutants of %zu files in %.0f s, %lld failed; at most %lld MiB for one\n",
              static_cast<long long>(record.counts["mutants"]), all.size(), record.seconds,
              static_cast<long long>(record.failures), static_cast<long long>(peak >> 20));
  return finish(record, arguments.json());
}
