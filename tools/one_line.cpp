// Apart from the rest of failure.h, which knows no torch.
#include <c10/util/Exception.h>

#include <vector>

#include "failure.h"

namespace tailor::tool {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::size_t first = text.find_first_not_of(" \t\r", begin);
    if (first < end) lines.push_back(text.substr(first, end - first));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::string one_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
  const std::vector<std::string> lines = lines_of(text);
  if (lines.empty()) return "unknown error";
  const bool interpreter = text.find("Traceback of TorchScript") != std::string::npos;
  std::string line = interpreter ? lines.back() : lines.front();
  // "[enforce fail at inline_container.cc:145] . message" names a place in torch's sources, not in the user's.
  if (line.starts_with("[enforce fail at ")) {
    if (const auto end = line.find("] . "); end != std::string::npos) line.erase(0, end + 4);
  }
  // What comes after it would be the source.
  while (line.ends_with(':')) line.pop_back();
  if (line.ends_with(" here")) line.erase(line.size() - 5);
  // The advice that torch adds to every error of its archive reader is meant for people who have no checker.
  if (const auto advice = line.find(" This is an internal miniz error."); advice != std::string::npos)
    line.erase(advice);
  return printable(line);
}

}  // namespace tailor::tool
