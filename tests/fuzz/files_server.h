// A process that has torch loaded and forks itself: a worker judges mutants one after another, and where one ends it, or
// takes too long, the next worker goes on behind it.
#pragma once
#include <functional>
#include <string>

#include "files_judge.h"

namespace tailor::fuzz {

struct Limits {
  unsigned seconds = 300;  // for one mutant; the command itself gives up after 60 of processor time
  std::uint64_t memory = std::uint64_t{2} << 30;  // bytes of address space beyond what a worker begins with
  std::uint64_t batch = 500;                      // mutants for one worker, so that none grows old
};

// `work` in a worker, from `begin` to `end`. `found` is called here, in order; it returns whether to go on. What the
// worker did not answer is a finding that says how it ended.
void serve(std::uint64_t begin, std::uint64_t end, const Limits& limits,
           const std::function<Finding(std::uint64_t)>& work,
           const std::function<bool(std::uint64_t, const Finding&)>& found);

}  // namespace tailor::fuzz
