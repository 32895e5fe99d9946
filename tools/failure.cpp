#include "failure.h"

#include <c10/util/Exception.h>

#include <cerrno>
#include <system_error>
#include <vector>

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

// The length of the printable character in UTF-8 that begins here; 0 if there is none.
std::size_t character_at(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  unsigned code = first & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr unsigned smallest[] = {0, 0, 0xa0, 0x800, 0x10000};  // below 0xa0 are more control characters
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  const bool turns_text = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);  // right to left
  return code < smallest[length] || code > 0x10ffff || surrogate || turns_text ? 0 : length;
}

}  // namespace

std::string printable(const std::string& text) {
  constexpr std::size_t longest = 400;
  constexpr char digits[] = "0123456789abcdef";
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (result.size() >= longest) return result + "...";
    if (const std::size_t length = character_at(text, at); length > 0) {
      result += text.substr(at, length);
      at += length;
    } else {
      const auto byte = static_cast<unsigned char>(text[at++]);
      result += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    }
  }
  return result;
}

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
  // The advice that torch adds to every error of its archive reader is meant for people who have no checker.
  if (const auto advice = line.find(" This is an internal miniz error."); advice != std::string::npos)
    line.erase(advice);
  return printable(line);
}

std::string system_error() { return std::generic_category().message(errno); }

}  // namespace tailor::tool
