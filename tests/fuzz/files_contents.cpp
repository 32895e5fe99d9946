// Archives that are right in every checksum and hold other things: what an attacker writes, or a program with a fault.
#include <algorithm>

#include "files_mutant.h"

namespace tailor::fuzz {
namespace {

bool ends_with(const std::string& text, const char* end) { return text.ends_with(end); }

// A record whose name ends like this, or nothing.
std::string* record_like(Contents& contents, const char* end, Random& random, std::string& name) {
  std::vector<std::string> fitting;
  for (const auto& [each, text] : contents)
    if (ends_with(each, end) && !text.empty()) fitting.push_back(each);
  if (fitting.empty()) return nullptr;
  name = random.of(fitting);
  return &contents[name];
}

std::string any_name(const Contents& contents, Random& random) {
  return std::next(contents.begin(), static_cast<long>(random.below(contents.size())))->first;
}

std::string pickle_bytes(Contents& contents, Random& random) {
  std::string name;
  std::string* text = record_like(contents, "pkl", random, name);
  const std::size_t at = random.below(text->size());
  (*text)[at] = static_cast<char>(random.next());
  return name + ", byte " + std::to_string(at);
}

std::string pickle_words(Contents& contents, Random& random) {
  std::string name;
  std::string* text = record_like(contents, random.one_in(4) ? "constants.pkl" : "data.pkl", random, name);
  return name + ": " + change_pickle(*text, random);
}

std::string code_words(Contents& contents, Random& random) {
  std::string name;
  std::string* text = record_like(contents, ".py", random, name);
  return name + ": " + change_code(*text, random);
}

std::string code_bytes(Contents& contents, Random& random) {
  std::string name;
  std::string* text = record_like(contents, random.one_in(4) ? "debug_pkl" : ".py", random, name);
  const std::size_t at = random.below(text->size());
  (*text)[at] = static_cast<char>(random.next());
  return name + ", byte " + std::to_string(at);
}

// Tensors that are shorter or longer than the pickle says; records that are something else.
std::string other_size(Contents& contents, Random& random) {
  std::string name = any_name(contents, random);
  for (int i = 0; i < 8 && !random.one_in(4) && name.find("data/") == std::string::npos; ++i)
    name = any_name(contents, random);
  std::string& text = contents[name];
  const std::size_t old = text.size();
  const std::size_t sizes[] = {0,           old - std::min<std::size_t>(old, 1), old / 2, old + 1, 2 * old,
                               old + 65536, old - std::min<std::size_t>(old, 4)};
  text.resize(sizes[random.below(std::size(sizes))], 'x');
  return name + " has " + std::to_string(text.size()) + " bytes instead of " + std::to_string(old);
}

std::string values(Contents& contents, Random& random) {
  std::vector<std::string> tensors;
  for (const auto& [name, text] : contents)
    if (name.find("data/") == 0 && !text.empty()) tensors.push_back(name);
  if (tensors.empty()) return "it has no tensors";
  const std::string name = random.of(tensors);
  std::string& text = contents[name];
  if (random.one_in(3)) {
    std::fill(text.begin(), text.end(), random.one_in(2) ? '\xff' : '\x7f');  // not a number, or very large
    return name + " is full of one byte";
  }
  const std::size_t at = random.below(text.size());
  text[at] = static_cast<char>(random.next());
  return name + ", byte " + std::to_string(at);
}

std::string take_over(const std::vector<Original>& all, Contents& contents, Random& random) {
  const std::string name = any_name(contents, random);
  const Contents& others = all[random.below(all.size())].contents;
  const auto same = others.find(name);
  const std::string other = same != others.end() && !random.one_in(3) ? name : any_name(others, random);
  contents[name] = others.at(other);
  return name + " is another file's " + other;
}

std::string exchange(Contents& contents, Random& random) {
  const std::string a = any_name(contents, random), b = any_name(contents, random);
  std::swap(contents[a], contents[b]);
  return a + " and " + b + " exchanged";
}

std::string rename_or_drop(Contents& contents, Random& random) {
  const std::string name = any_name(contents, random);
  const std::string text = contents[name];
  if (!random.one_in(3)) contents.erase(name);
  if (random.one_in(2)) return name + " is gone";
  const char* const names[] = {"model.json",
                               "data/7",
                               "constants/0",
                               "traced_inputs.pkl",
                               "extra/more",
                               "attributes.pkl",
                               "code/more.py",
                               "data.pkl",
                               "constants.pkl",
                               "archive_format",
                               "data",
                               "bytecode.pkl",
                               "mobile_debug_handles.pkl"};
  const std::string other = names[random.below(std::size(names))];
  contents[other] = text;
  return name + " is there as " + other;
}

std::string version(Contents& contents, Random& random) {
  const char* const versions[] = {
      "0", "1\n", "2\n", "3", "10\n", "11\n", "999\n", "-1\n", "", "three", "18446744073709551616", "4 5"};
  std::string& text = contents[random.one_in(4) ? "byteorder" : "version"];
  text = random.one_in(6) ? "big" : versions[random.below(std::size(versions))];
  return "version or byteorder '" + text + "'";
}

}  // namespace

void change_contents(const std::vector<Original>& all, Mutant& mutant, Random& random, Steps& steps) {
  mutant.covered = false;
  Contents contents = mutant.from->contents;
  const auto run = [&](const char* kind, std::size_t most, const auto& change) {
    mutant.kind = kind;
    steps.run(1 + random.below(most),
              [&](Random& own) { return contents.empty() ? "nothing is left" : change(contents, own); });
  };
  switch (random.below(14)) {
    case 0:
      run("pickles, bytes of", 2, pickle_bytes);
      break;
    case 1:
    case 2:
    case 3:
    case 4:
      run("pickles, words of", 3, pickle_words);
      break;
    case 5:
    case 6:
    case 7:
      run("code, words of", 3, code_words);
      break;
    case 8:
      run("code, bytes of", 2, code_bytes);
      break;
    case 9:
      run("sizes of records", 2, other_size);
      break;
    case 10:
      run("values of tensors", 2, values);
      break;
    case 11:
      run("records of other files", 2, [&](Contents& mine, Random& own) { return take_over(all, mine, own); });
      break;
    case 12:
      run("records exchanged, renamed or dropped", 2,
          [](Contents& mine, Random& own) { return own.one_in(2) ? exchange(mine, own) : rename_or_drop(mine, own); });
      break;
    default:
      run("versions", 1, version);
  }
  mutant.data = packed(contents);
}

std::uint64_t odd_number(Random& random, std::uint64_t old) {
  const std::uint64_t numbers[] = {0,
                                   1,
                                   old + 1,
                                   old - 1,
                                   2 * old,
                                   old / 2,
                                   0x7f,
                                   0x80,
                                   0xff,
                                   0x7fff,
                                   0xffff,
                                   0x7fffffff,
                                   0x80000000,
                                   0xfffffffe,
                                   0xffffffff,
                                   0x100000000,
                                   ~std::uint64_t{0},
                                   std::uint64_t{1} << 63,
                                   (std::uint64_t{1} << 63) - 1,
                                   std::uint64_t{1} << 62,
                                   random.next()};
  return numbers[random.below(std::size(numbers))];
}

Mutant make(const std::vector<Original>& all, std::uint64_t seed, std::uint64_t number, std::uint64_t leave_out) {
  Random random(seed, number);
  Mutant mutant;
  mutant.from = &all[random.below(all.size())];
  Steps steps(mutant, random.next(), leave_out);
  // What is covered is soon refused; most of the time should go to what gets as far as torch.
  const std::size_t which = random.below(20);
  if (which < 7)
    change_bytes(all, mutant, random, steps);
  else if (which < 11)
    tell_lies(all, mutant, random, steps);
  else
    change_contents(all, mutant, random, steps);
  return mutant;
}

}  // namespace tailor::fuzz
