#include "refusals.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "environment.h"
#include "fork.h"

namespace tailor {
namespace {

bool is_logging() {
  static const bool on = from_environment("TAILOR_LOG", false);
  return on;
}

std::mutex& mutex() {
  static auto* one = [] {
    free_in_children<mutex>();
    return new std::mutex;  // never destroyed: a thread may still be running when the process ends
  }();
  return *one;
}

}  // namespace

void note_refusal(std::string_view op, std::string_view reason) {
  if (!is_logging()) return;
  static auto* said = new std::set<std::string>;
  const std::string line = "tailor: " + std::string(op) + " runs its reference: " + std::string(reason) + "\n";
  const std::lock_guard lock(mutex());
  if (said->insert(line).second) std::fputs(line.c_str(), stderr);
}

}  // namespace tailor
