// How often each op took each path. A test that means to run a kernel looks here whether the kernel ran.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace tailor {

class CallCounter {
 public:
  // The name under which torch.ops.tailor.calls() reports it, such as "linear_mul_batch_norm/reference".
  CallCounter(std::string_view op, std::string_view path);
  CallCounter(const CallCounter&) = delete;
  CallCounter& operator=(const CallCounter&) = delete;
  ~CallCounter();

  void count() { calls_.fetch_add(1, std::memory_order_relaxed); }
  std::int64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  void reset() { calls_.store(0, std::memory_order_relaxed); }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::atomic<std::int64_t> calls_{0};
};

}  // namespace tailor
