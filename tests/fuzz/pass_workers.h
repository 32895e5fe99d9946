// Processes that work side by side, so that a crash costs one model, and is reported with it.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "pass_judge.h"

namespace tailor::fuzz {

struct Plan {
  std::uint64_t seed = 1;
  std::int64_t first = 0, count = 0;  // models; 0: no limit
  double seconds = 0;                 // 0: no limit
  int jobs = 2;
  std::size_t most_failures = 10;
  bool progress = false;
  std::function<Model(std::int64_t)> model;  // by its number
};

struct Failure {
  std::int64_t model;
  Verdict verdict;
};

struct Result {
  Tally tally;
  std::vector<Failure> failures;
  double seconds = 0;
};

// The seed of a model of a run.
std::uint64_t seed_of(std::uint64_t seed, std::int64_t model);

Result run_all(const Plan& plan);

// Judges one model in a process of its own.
Verdict judge_apart(const Model& model, const Without& without);

}  // namespace tailor::fuzz
