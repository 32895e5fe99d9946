// Runs one random model unfused and fused through the doors, and says what became of its chains.
#pragma once
#include <map>
#include <string>

#include "pass_model.h"

namespace tailor::fuzz {

// How many chains came to what, by rule, by what disturbed them and by the pass's reason.
struct Count {
  std::int64_t planted = 0, fused = 0, refused = 0, wrong = 0, missed = 0;
};
struct Tally {
  std::map<std::string, Count> by_rule, by_disturbance, by_reason, by_door;
  std::map<std::string, std::int64_t> numbers;  // "models", "calls", "door fuse", …

  void add(const Tally& other);
};

enum class Kind {
  none,
  wrong,
  missed,
  elsewhere,  // a chain that the pass itself fuses, and another door does not, or the other way round
  invalid,
  crashed
};
const char* to_string(Kind kind);

struct Verdict {
  Kind kind = Kind::none;
  std::string text;  // the door, the call, and what differs; or the chain and the reason against it
};

// A reason without names and lines.
std::string plain_words(const std::string& reason);

Verdict judge(const Model& model, const Without& without, Tally& tally);

}  // namespace tailor::fuzz
