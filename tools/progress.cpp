#include "progress.h"

#include <unistd.h>

#include <cstdio>

#include "failure.h"

namespace tailor::tool {

Progress::Progress() : watched_(isatty(STDERR_FILENO) == 1) {}

void Progress::show(const std::string& what, std::uint64_t done, std::uint64_t total) {
  if (!watched_) return;
  const auto now = std::chrono::steady_clock::now();
  if (what == what_ && now < next_) return;  // ten times a second is enough to watch
  what_ = what;
  next_ = now + std::chrono::milliseconds(100);
  std::string line = printable(what);
  if (total > 0)
    line +=
        " " + std::to_string(static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total))) + "%";
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  shown_ = true;
}

void Progress::clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

}  // namespace tailor::tool
