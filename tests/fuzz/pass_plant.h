// Faults that the fuzzer plants in the fused side of a door, after Tailor has made it, so that its own judge is seen to find
// each kind of difference: fuzz_pass --plant result. No model is told apart from the others by it.
#pragma once
#include <ostream>

#include "pass_judge.h"

namespace tailor::fuzz {

struct Result;

// What may be planted, and what must be said of it.
struct Fault {
  std::string name;
  std::string what;
  Kind kind;
  std::string words;  // in the verdict's text
};
const std::vector<Fault>& all_faults();
const Fault* find_fault(const std::string& name);

// Plants a fault at one door, which the model then goes through.
void plant(Model& model, const Fault& fault);

// How many models a fault has changed something in, by door, and how many of them were reported for what it is. True
// where that is enough.
bool is_found(const Fault& fault, const Result& result, std::ostream& out);

}  // namespace tailor::fuzz
