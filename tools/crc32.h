// CRC-32 as zip files use it (polynomial 0xedb88320), eight bytes at a step: models are gigabytes.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tailor::tool {

// Continues `crc` over `size` more bytes; begin with 0.
std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size);

}  // namespace tailor::tool
