// Decompresses a deflate stream (RFC 1951) in bounded memory. torch compresses the source code in its archives, and a
// checksum is over the text, so a checker has to undo it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>

namespace tailor::tool {

struct InflateError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Inflated {
  std::uint64_t read = 0;     // compressed bytes that the stream took
  std::uint64_t written = 0;  // bytes that it became
};

// `next` fills a buffer and returns how many bytes it has put there, 0 at the end; `sink` takes the result in pieces.
// Throws InflateError if the stream is damaged, ends early, or grows past `limit`.
Inflated inflate(const std::function<std::size_t(unsigned char* buffer, std::size_t size)>& next,
                 const std::function<void(const unsigned char* data, std::size_t size)>& sink, std::uint64_t limit);

}  // namespace tailor::tool
