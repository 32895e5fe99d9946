// Texts come from files, and may hold any bytes. Nothing here is torch.
#pragma once
#include <cstddef>
#include <string>

namespace tailor {

struct Character {
  std::size_t length;  // in bytes; 0 where there is none in UTF-8
  char32_t code;
};

// The character that begins at `at`, which is before the text's end.
inline Character character_at(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, first};
  if (first < 0xc2 || first > 0xf4) return {};
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  char32_t code = first & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr char32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < smallest[length] || code > 0x10ffff || surrogate) return {};
  return {length, code};
}

// A byte that is part of no character, as people see it.
inline std::string spoken_byte(char byte) {
  constexpr char digits[] = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  return {'\\', 'x', digits[value >> 4], digits[value & 15]};
}

}  // namespace tailor
