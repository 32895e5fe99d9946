// Tries something in a child process first, so that a crash, a hang or a greedy allocation costs one error message.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tailor::tool {

struct Limits {
  std::uint64_t memory = std::uint64_t{1} << 30;  // bytes of address space beyond what the process has now
  unsigned seconds = 60;                          // of processor time; four times as many by the clock
};

// Runs `work` in a child that cannot open files, dump core, or go beyond the limits: what it is to read is open before.
// Returns what went wrong, as part of a sentence about a file, or nothing. Call it while this process has one thread of its own:
// a lock that another thread holds at this moment stays locked in the child, which the limits then end.
std::optional<std::string> trial(const std::function<void()>& work, const Limits& limits);

}  // namespace tailor::tool
