#include "failure.h"

#include <cerrno>
#include <iostream>
#include <system_error>

#include "../passes/utf8.h"

namespace tailor::tool {
namespace {

// The length of the character that begins here, if it is one that people see; else 0.
std::size_t printable_at(const std::string& text, std::size_t at) {
  const auto [length, code] = character_at(text, at);
  const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  const bool turns_text = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);  // right to left
  return control || turns_text ? 0 : length;
}

std::string printable(const std::string& text, std::size_t longest) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (result.size() >= longest) return result + "...";
    if (const std::size_t length = printable_at(text, at); length > 0) {
      result += text.substr(at, length);
      at += length;
    } else {
      result += spoken_byte(text[at++]);
    }
  }
  return result;
}

}  // namespace

int tell(const Failure& failure) {
  std::cerr << "tailor: " << whole(failure.what()) << '\n';
  return static_cast<int>(failure.exit);
}

std::string printable(const std::string& text) { return printable(text, 400); }

std::string whole(const std::string& text) { return printable(text, std::string::npos); }

std::string system_error() { return std::generic_category().message(errno); }

}  // namespace tailor::tool
