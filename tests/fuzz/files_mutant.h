// A file with something wrong in it, made from a good one.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "files_originals.h"
#include "random.h"

namespace tailor::fuzz {

struct Mutant {
  std::string kind;  // such as "flipped bits", one row of the table
  // Lengths and checksums cover what was changed: if such a file is accepted, it must say what the original says. The
  // others were packed again with right checksums. They are other files, not damaged ones, and nothing in the format
  // says what they should hold; what must hold for them is in files_judge.h.
  bool covered = true;
  const Original* from = nullptr;
  std::uint64_t held = 0;          // bytes that a compressed record becomes which is read whole
  std::vector<std::string> steps;  // what was done, in words
  Data data;
};

// One change after another. Bit i of `leave_out` leaves out the i-th, and the others stay what they were.
class Steps {
 public:
  Steps(Mutant& mutant, std::uint64_t seed, std::uint64_t leave_out)
      : mutant_(mutant), seed_(seed), leave_out_(leave_out) {}

  // `change` draws from a Random of its own, changes something, and says what.
  template <class Change>
  void run(std::size_t count, const Change& change) {
    for (std::size_t i = 0; i < count; ++i) {
      Random random(seed_, 1000 + i);
      if (leave_out_ >> i & 1)
        mutant_.steps.emplace_back();
      else
        mutant_.steps.push_back(change(random));
    }
  }

 private:
  Mutant& mutant_;
  const std::uint64_t seed_, leave_out_;
};

// The bytes of a file, without regard for checksums. (files_bytes.cpp)
void change_bytes(const std::vector<Original>& all, Mutant& mutant, Random& random, Steps& steps);

// A new archive around the same records that lies about them. (files_lies.cpp)
void tell_lies(const std::vector<Original>& all, Mutant& mutant, Random& random, Steps& steps);

// Other records, in an archive whose checksums are right. (files_contents.cpp)
void change_contents(const std::vector<Original>& all, Mutant& mutant, Random& random, Steps& steps);

// The words of a pickle, and of source code. (files_words.cpp)
std::string change_pickle(std::string& pickle, Random& random);
std::string change_code(std::string& code, Random& random);

// The mutant of this number; the same for the same seed.
Mutant make(const std::vector<Original>& all, std::uint64_t seed, std::uint64_t number, std::uint64_t leave_out = 0);

// A number that somebody may have forgotten to think of.
std::uint64_t odd_number(Random& random, std::uint64_t old);

}  // namespace tailor::fuzz
