// One thread at a time: graphs of functions are looked at and changed without torch's knowing, and two models share functions wherever they
// share a class, be it nn.Linear.
#pragma once
#include <mutex>

namespace tailor {

// Waits until no other thread is within one. Within each other they are one.
class OneThread {
 public:
  OneThread();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

}  // namespace tailor
