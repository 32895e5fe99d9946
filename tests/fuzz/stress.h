// What the programs with threads and those that look at memory have in common: they count and fail from any thread.
#pragma once
#include <mutex>
#include <string>

#include "program.h"
#include "tools/progress.h"

namespace tailor::test {

class Stress {
 public:
  Stress(std::string title, std::string what, const fuzz::Arguments& arguments);

  std::int64_t number(const std::string& name) const { return arguments_.number(name); }
  bool has_time() const { return arguments_.seconds() == 0 || clock_.seconds() < arguments_.seconds(); }

  void show(std::int64_t done, std::int64_t all);
  void ask(const std::string& name, std::int64_t number) { record_.asked[name] = number; }
  void count(const std::string& name, std::int64_t more);  // from any thread
  void fail(const std::string& text);                      // from any thread; the first few are printed
  std::int64_t failures();

  int finish();  // prints the record and writes it; what main returns

 private:
  const fuzz::Arguments arguments_;
  const fuzz::Clock clock_;
  std::mutex mutex_;
  fuzz::Record record_;
  tool::Progress progress_;
};

}  // namespace tailor::test
