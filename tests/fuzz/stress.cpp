#include "stress.h"

#include <cstdio>

namespace tailor::test {

Stress::Stress(std::string title, std::string what, const fuzz::Arguments& arguments) : arguments_(arguments) {
  record_.title = std::move(title);
  record_.what = std::move(what);
  record_.command = arguments.command();
}

void Stress::show(std::int64_t done, std::int64_t all) {
  if (all > 0) progress_.show(record_.title, static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(all));
}

void Stress::count(const std::string& name, std::int64_t more) {
  const std::lock_guard lock(mutex_);
  record_.counts[name] += more;
}

void Stress::fail(const std::string& text) {
  constexpr std::int64_t printed = 5;
  const std::lock_guard lock(mutex_);
  if (++record_.failures > printed) return;
  std::fprintf(stderr, "\n%s: %s\n", record_.command.c_str(), text.c_str());
}

std::int64_t Stress::failures() {
  const std::lock_guard lock(mutex_);
  return record_.failures;
}

int Stress::finish() {
  progress_.clear();
  record_.seconds = clock_.seconds();
  std::fputs(fuzz::to_json(record_).c_str(), stdout);
  return fuzz::finish(record_, arguments_.json());
}

}  // namespace tailor::test
