#include "refusals.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

namespace tailor {
namespace {

bool is_logging() {
  static const bool on = [] {
    const char* value = std::getenv("TAILOR_LOG");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return on;
}

}  // namespace

void note_refusal(std::string_view op, std::string_view reason) {
  if (!is_logging()) return;
  static std::mutex mutex;
  static auto* said =
      new std::set<std::string>;  // never destroyed: a thread may still be running when the process ends
  const std::string line = "tailor: " + std::string(op) + " runs its reference: " + std::string(reason) + "\n";
  const std::lock_guard lock(mutex);
  if (said->insert(line).second) std::fputs(line.c_str(), stderr);
}

}  // namespace tailor
