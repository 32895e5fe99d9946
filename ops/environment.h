// Switches in the environment.
#pragma once
#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

namespace tailor {

// Off where the variable is 0, off, false or no, on where it is 1, on, true or yes, in any case. Another value is said
// once to be none, and taken for on, as it has always been.
inline bool from_environment(const char* name, bool otherwise) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return otherwise;
  std::string word = value;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto is_one_of = [&](std::initializer_list<const char*> words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (is_one_of({"0", "off", "false", "no"})) return false;
  if (!is_one_of({"1", "on", "true", "yes"})) {
    static std::mutex mutex;
    static auto* said = new std::set<std::string>;  // never destroyed, see refusals.cpp
    const std::lock_guard lock(mutex);
    if (said->insert(name).second) {
      TORCH_WARN("Tailor takes ", name, "=", value, " for 1. It knows 0, off, false, no and 1, on, true, yes.");
    }
  }
  return true;
}

}  // namespace tailor
