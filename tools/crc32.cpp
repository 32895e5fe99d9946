#include "crc32.h"

#include <array>

namespace tailor::tool {
namespace {

// tables[k][b]: what byte b contributes when k more bytes follow it in the same step.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0xedb88320U : 0U);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 255];
    }
  }
  return tables;
}

constexpr Tables tables = make_tables();

}  // namespace

std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; size >= 8; bytes += 8, size -= 8) {
    std::uint32_t next = 0;
    for (unsigned k = 0; k < 4; ++k) {
      next ^= tables[7 - k][((crc >> (8 * k)) & 255) ^ bytes[k]];
      next ^= tables[3 - k][bytes[4 + k]];
    }
    crc = next;
  }
  for (; size > 0; ++bytes, --size) crc = (crc >> 8) ^ tables[0][(crc ^ *bytes) & 255];
  return ~crc;
}

}  // namespace tailor::tool
