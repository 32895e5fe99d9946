#include "calls.h"

#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "fork.h"
#include "second_copy.h"

namespace tailor {
namespace {

struct Counters {
  std::mutex mutex;
  std::vector<CallCounter*> all;
  Counters();
};

Counters& counters() {
  static Counters* never_destroyed = new Counters;  // counters of other files may outlive a static of this one
  return *never_destroyed;
}

Counters::Counters() {
  free_in_children<[]() -> std::mutex& { return counters().mutex; }>();
}

c10::Dict<std::string, std::int64_t> calls() {
  c10::Dict<std::string, std::int64_t> result;
  const std::lock_guard lock(counters().mutex);
  for (const CallCounter* counter : counters().all) result.insert(counter->name(), counter->calls());
  return result;
}

void reset_calls() {
  const std::lock_guard lock(counters().mutex);
  for (CallCounter* counter : counters().all) counter->reset();
}

}  // namespace

CallCounter::CallCounter(std::string_view op, std::string_view path) {
  name_.append(op).append("/").append(path);
  const std::lock_guard lock(counters().mutex);
  counters().all.push_back(this);
}

CallCounter::~CallCounter() {
  const std::lock_guard lock(counters().mutex);
  auto& all = counters().all;
  all.erase(std::remove(all.begin(), all.end(), this), all.end());
}

TORCH_LIBRARY_FRAGMENT(tailor, library) {
  if (is_second_copy()) return;
  library.def("calls() -> Dict(str, int)", calls);
  library.def("reset_calls() -> ()", reset_calls);
}

}  // namespace tailor
