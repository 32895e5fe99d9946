// fuzz_reader: a coverage-guided fuzzer of the archive reader, for a compiler that brings none. It mutates what it has,
// keeps what went somewhere new, and puts numbers that the reader compared into each other's places. The address and
// undefined-behaviour sanitizers watch.
//   fuzz_reader --corpus DIR --seconds 20 --json reader.json
//   fuzz_reader --corpus DIR --seconds 3600 --keep NEW_DIR      also writes what went somewhere new
//   fuzz_reader --corpus DIR --from NEW_DIR --keep DIR/grown    of NEW_DIR what DIR lacks, and no more: the smallest
//                                                               first, and of each the bytes that it needs
// So the kept corpus grows by what hours have found.
#include <sanitizer/common_interface_defs.h>
#include <csignal>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "program.h"
#include "random.h"
#include "reader_coverage.h"
#include "reader_target.h"
#include "tools/progress.h"

// The names are those that the sanitizers call.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0:max_allocation_size_mb=512:allocator_may_return_null=0:quarantine_size_mb=16";
}

extern "C" const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }
// NOLINTEND(bugprone-reserved-identifier)

namespace {

using namespace tailor::fuzz;
using Input = std::vector<unsigned char>;

constexpr std::size_t largest = 4096;
constexpr unsigned patience = 10;  // seconds for one input

Input present;  // what a crash is about
std::int64_t inputs = 0;
Clock since_start;

void write_input(const Input& input, const std::string& path) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(input.data()), static_cast<long>(input.size()));
}

void died() {
  write_input(present, "fuzz-reader-crash");
  std::fprintf(stderr,
               "\nfuzz_reader: input %lld after %.1f s, %zu bytes; it is in ./fuzz-reader-crash; again:\n  fuzz_reader "
               "--only fuzz-reader-crash\n",
               static_cast<long long>(inputs), since_start.seconds(), present.size());
}

void ended(int signal) {
  if (signal == SIGALRM) std::fprintf(stderr, "\nfuzz_reader: an input took more than %u s\n", patience);
  died();
  _exit(1);
}

// Which classes of counts (1, 2, 3, 4-7, ...) an edge has been seen with.
std::array<std::uint8_t, edges> seen{};

std::size_t new_edges() {
  std::size_t found = 0;
  for (std::size_t i = 0; i < edges; i += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, &counters[i], 8);
    if (eight == 0) continue;
    for (std::size_t j = i; j < i + 8; ++j) {
      const unsigned n = counters[j];
      const unsigned level = n == 0 ? 0 : n < 4 ? n : n < 8 ? 4 : n < 16 ? 5 : n < 32 ? 6 : n < 128 ? 7 : 8;
      const auto bit = static_cast<std::uint8_t>(level == 0 ? 0 : 1U << (level - 1));
      if (bit & ~seen[j]) {
        seen[j] |= bit;
        ++found;
      }
    }
  }
  return found;
}

// Runs it; whether it went somewhere new.
bool run(const Input& input) {
  present = input;
  counters.fill(0);
  comparisons.clear();
  alarm(patience);
  run_reader(input);
  ++inputs;
  return new_edges() > 0;
}

// What is left of an input when all bytes are gone without which it goes everywhere new that it went, too.
Input shrunk(Input input, const std::array<std::uint8_t, edges>& before) {
  const auto wanted = seen;
  for (std::size_t size = input.size() / 2; size > 0; size /= 2) {
    for (std::size_t at = 1; at + size <= input.size();) {  // the first byte says what reads the rest
      Input less = input;
      const auto begin = less.begin() + static_cast<std::ptrdiff_t>(at);
      less.erase(begin, begin + static_cast<std::ptrdiff_t>(size));
      seen = before;
      run(less);
      if (std::ranges::equal(wanted, seen, [](auto all, auto got) { return (all & ~got) == 0; }))
        input = less;
      else
        at += size;
    }
  }
  seen = before;
  run(input);
  return input;
}

void put_number(Input& input, std::size_t at, std::uint64_t value, std::size_t size) {
  for (std::size_t i = 0; i < size && at + i < input.size(); ++i)
    input[at + i] = static_cast<unsigned char>(value >> (8 * i));
}

// One of the numbers that the last run compared takes the place of the other, where that stands in the input.
void satisfy(Input& input, const std::vector<Compared>& pairs, Random& random) {
  if (pairs.empty()) return;
  Compared pair = pairs[random.below(pairs.size())];
  if (random.one_in(2)) std::swap(pair.a, pair.b);
  const auto size = static_cast<std::size_t>(pair.size);
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at + size <= input.size(); ++at) {
    std::uint64_t there = 0;
    for (std::size_t i = 0; i < size; ++i) there |= std::uint64_t{input[at + i]} << (8 * i);
    if (there == pair.a) places.push_back(at);
  }
  if (size == 8 && places.empty())
    return satisfy(input, {{pair.a, pair.b, 4}}, random);  // computed from a smaller field
  if (!places.empty()) put_number(input, random.of(places), pair.b, size);
}

void mutate(Input& input, const std::vector<Input>& corpus, const std::vector<Compared>& pairs, Random& random) {
  const std::size_t at = random.below(input.size()),
                    end = at + random.below(std::min<std::size_t>(input.size() - at, 64)) + 1;
  const auto place = [&](std::size_t i) { return input.begin() + static_cast<std::ptrdiff_t>(i); };
  switch (random.below(9)) {
    case 0:
      input[at] ^= static_cast<unsigned char>(1U << random.below(8));
      break;
    case 1:
      input[at] = static_cast<unsigned char>(random.next());
      break;
    case 2: {
      const std::uint64_t odd[] = {
          0,           1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, ~std::uint64_t{0}, std::uint64_t{1} << 63,
          input.size()};
      put_number(input, at, odd[random.below(std::size(odd))], std::size_t{1} << random.below(4));
      break;
    }
    case 3:
      input[at] = static_cast<unsigned char>(input[at] + random.below(9) - 4);
      break;
    case 4:
      input.erase(place(at), place(end));
      break;
    case 5: {
      const Input piece(place(at), place(end));
      input.insert(place(random.below(input.size() + 1)), piece.begin(), piece.end());
      break;
    }
    case 6: {
      const Input& other = corpus[random.below(corpus.size())];
      const std::size_t from = random.below(other.size()), size = random.below(other.size() - from) + 1;
      const auto begin = other.begin() + static_cast<std::ptrdiff_t>(from);
      input.insert(place(at), begin, begin + static_cast<std::ptrdiff_t>(size));
      break;
    }
    default:
      satisfy(input, pairs, random);
  }
  if (input.empty()) input.push_back(0);
  if (input.size() > largest) input.resize(largest);
}

Input read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// All in a folder and those in it, the smallest first: the same order on every machine.
std::vector<Input> read_all(const std::string& folder) {
  std::vector<Input> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) all.push_back(read(entry.path()));
  std::erase(all, Input());
  std::sort(all.begin(), all.end(),
            [](const Input& a, const Input& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; });
  return all;
}

// By what it holds, so that finding it again changes nothing.
std::string name_of(const Input& input) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const unsigned char byte : input) hash = (hash ^ byte) * 0x100000001b3;
  char name[40];
  constexpr const char* parts[] = {"archive", "stream", "pickle"};
  std::snprintf(name, sizeof name, "%s-%016llx", parts[input[0] % 3], static_cast<unsigned long long>(hash));
  return name;
}

std::int64_t edges_reached() {
  return std::count_if(seen.begin(), seen.end(), [](auto bits) { return bits != 0; });
}

}  // namespace

int main(int count, char** words) {
  const Arguments arguments(count, words, {{"corpus", ""}, {"from", ""}, {"keep", ""}, {"only", ""}});
  for (const int number : {SIGABRT, SIGALRM}) std::signal(number, ended);
  __sanitizer_set_death_callback(died);
  if (const std::string& only = arguments.text("only"); !only.empty()) {
    run(read(only));
    std::printf("nothing happened; it held %llu bytes\n", static_cast<unsigned long long>(reader_held_at_most()));
    return 0;
  }

  std::vector<Input> corpus;
  std::vector<std::vector<Compared>> compared;  // by the input beside it
  const auto keep = [&](const Input& input) {
    corpus.push_back(input);
    compared.push_back(comparisons);
  };
  const auto keep_new = [&](const Input& input) {
    keep(input);
    if (const std::string& folder = arguments.text("keep"); !folder.empty())
      write_input(input, folder + "/" + name_of(input));
  };
  if (arguments.text("corpus").empty()) return std::fprintf(stderr, "fuzz_reader: there is no --corpus\n"), 2;
  for (const Input& input : read_all(arguments.text("corpus"))) {
    run(input);
    keep(input);
  }
  if (corpus.empty()) return std::fprintf(stderr, "fuzz_reader: the corpus is empty\n"), 2;
  const std::size_t given = corpus.size();
  const std::int64_t edges_given = edges_reached();
  std::printf("%zu inputs of the corpus reach %lld edges\n", given, static_cast<long long>(edges_given));
  if (const std::string& from = arguments.text("from"); !from.empty()) {
    for (const Input& input : read_all(from)) {
      const auto before = seen;
      if (run(input)) keep_new(shrunk(input, before));
    }
    std::printf("%zu more reach %lld\n", corpus.size() - given, static_cast<long long>(edges_reached()));
    return 0;
  }

  Random random(arguments.seed());
  tailor::tool::Progress progress;
  while ((arguments.count() == 0 || inputs < arguments.count()) &&
         (arguments.seconds() <= 0 || since_start.seconds() < arguments.seconds())) {
    // What was found last is tried more often.
    const std::size_t which = random.one_in(2)
                                  ? random.below(corpus.size())
                                  : corpus.size() - 1 - random.below(std::min<std::size_t>(corpus.size(), 20));
    Input input = corpus[which];
    for (std::size_t i = 0, n = 1 + random.below(6); i < n; ++i) mutate(input, corpus, compared[which], random);
    if (run(input)) keep_new(input);
    if (inputs % 16384 == 0)
      progress.show(std::to_string(inputs) + " inputs, " + std::to_string(corpus.size()) + " kept");
  }
  alarm(0);
  progress.clear();

  Record record;
  record.title = "The archive reader, guided by coverage";
  record.what =
      "The checks that a file goes through before torch sees it (directory, records, deflate, pickles), with the "
      "address and undefined-behaviour sanitizers, on inputs that grow towards code that none has reached. Each input "
      "may make the reader hold 128 KiB, and 24 bytes for each of its own and of its largest pickle's.";
  record.command = arguments.command();
  record.seconds = since_start.seconds();
  record.counts["inputs"] = inputs;
  record.asked = {{"inputs", arguments.count()}, {"edges reached", 0}};
  record.counts["inputs in the kept corpus"] = static_cast<std::int64_t>(given);
  record.counts["inputs that went somewhere new"] = static_cast<std::int64_t>(corpus.size() - given);
  record.counts["edges reached"] = edges_reached();
  record.counts["edges reached by the kept corpus"] = edges_given;
  record.counts["KiB held by the reader at once, at most"] = static_cast<std::int64_t>(reader_held_at_most() >> 10);
  std::printf("%lld inputs in %.0f s, %zu kept beside %zu given, %lld edges reached, nothing found\n",
              static_cast<long long>(inputs), record.seconds, corpus.size() - given, given,
              static_cast<long long>(record.counts["edges reached"]));
  return finish(record, arguments.json());
}
