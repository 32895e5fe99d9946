// One line on the terminal that says what is going on. Silent where nobody watches.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace tailor::tool {

class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // With a total of 0, only what is being done.
  void show(const std::string& what, std::uint64_t done = 0, std::uint64_t total = 0);
  void clear();  // before anything else is printed

 private:
  const bool watched_;
  bool shown_ = false;
  std::string what_;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace tailor::tool
