#include "failure.h"

#include <cerrno>
#include <iostream>
#include <system_error>

namespace tailor::tool {
namespace {

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

std::string printable(const std::string& text, std::size_t longest) {
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

}  // namespace

int tell(const Failure& failure) {
  std::cerr << "tailor: " << whole(failure.what()) << '\n';
  return static_cast<int>(failure.exit);
}

std::string printable(const std::string& text) { return printable(text, 400); }

std::string whole(const std::string& text) { return printable(text, std::string::npos); }

std::string system_error() { return std::generic_category().message(errno); }

}  // namespace tailor::tool
