#include "inflate.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace tailor::tool {
namespace {

constexpr unsigned longest_code = 15;
constexpr std::size_t window_size = 32768;

// Bits of the stream, least significant first.
class Bits {
 public:
  explicit Bits(const std::function<std::size_t(unsigned char*, std::size_t)>& next) : next_(next) {}

  unsigned get(unsigned count) {
    while (held_ < count) {
      bits_ |= static_cast<std::uint32_t>(byte()) << held_;
      held_ += 8;
    }
    const unsigned value = bits_ & ((1U << count) - 1);
    bits_ >>= count;
    held_ -= count;
    return value;
  }

  // Drops what is left of the current byte. No whole byte is ever held back: get() reads no further than it must.
  void to_byte() { bits_ = held_ = 0; }

  std::uint64_t read() const { return read_; }

 private:
  unsigned char byte() {
    if (at_ == size_) {
      size_ = next_(buffer_.data(), buffer_.size());
      at_ = 0;
      if (size_ == 0) throw InflateError("its compressed data ends early");
    }
    ++read_;
    return buffer_[at_++];
  }

  const std::function<std::size_t(unsigned char*, std::size_t)>& next_;
  std::vector<unsigned char> buffer_ = std::vector<unsigned char>(65536);
  std::size_t at_ = 0, size_ = 0;
  std::uint32_t bits_ = 0;
  unsigned held_ = 0;
  std::uint64_t read_ = 0;
};

// The last 32 KiB of the result, which the stream may refer back to; handed on whenever it is full.
class Window {
 public:
  Window(const std::function<void(const unsigned char*, std::size_t)>& sink, std::uint64_t limit)
      : sink_(sink), limit_(limit) {}

  void put(unsigned char byte) {
    if (written_ == limit_) throw InflateError("it is larger than the archive says");
    ring_[written_++ % window_size] = byte;
    if (written_ % window_size == 0) sink_(ring_.data(), window_size);
  }

  void repeat(std::size_t distance, std::size_t length) {
    if (distance > written_) throw InflateError("its compressed data refers to before its beginning");
    for (; length > 0; --length) put(ring_[(written_ - distance) % window_size]);
  }

  std::uint64_t finish() {
    sink_(ring_.data(), written_ % window_size);
    return written_;
  }

 private:
  const std::function<void(const unsigned char*, std::size_t)>& sink_;
  const std::uint64_t limit_;
  std::vector<unsigned char> ring_ = std::vector<unsigned char>(window_size);
  std::uint64_t written_ = 0;
};

// A canonical Huffman code: the codes of each length are consecutive numbers, given to the symbols in order.
class Code {
 public:
  // `incomplete` allows the one exception of the RFC: a code of a single symbol, or of none.
  Code(std::span<const unsigned char> lengths, bool incomplete) {
    for (const unsigned char length : lengths) ++count_[length];
    int free = 1;  // codes of the present length that are not taken
    for (unsigned length = 1; length <= longest_code; ++length) {
      free = 2 * free - count_[length];
      if (free < 0) throw InflateError("its compressed data has an impossible code");
    }
    const bool at_most_one = lengths.size() - count_[0] <= 1;
    if (free > 0 && !(incomplete && at_most_one)) throw InflateError("its compressed data has an incomplete code");
    std::array<unsigned, longest_code + 2> offset{};
    for (unsigned length = 1; length <= longest_code; ++length) offset[length + 1] = offset[length] + count_[length];
    symbols_.resize(lengths.size());
    for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol) {
      if (lengths[symbol] != 0) symbols_[offset[lengths[symbol]]++] = static_cast<unsigned short>(symbol);
    }
  }

  unsigned read(Bits& bits) const {
    int code = 0, first = 0, index = 0;
    for (unsigned length = 1; length <= longest_code; ++length) {
      code |= static_cast<int>(bits.get(1));
      if (code - first < count_[length]) return symbols_[static_cast<std::size_t>(index + code - first)];
      index += count_[length];
      first = (first + count_[length]) << 1;
      code <<= 1;
    }
    throw InflateError("its compressed data has an unknown code");
  }

 private:
  std::array<int, longest_code + 1> count_{};
  std::vector<unsigned short> symbols_;
};

struct Codes {
  Code literals, distances;
};

Codes fixed_codes() {
  std::array<unsigned char, 288> literals{};
  std::fill(literals.begin(), literals.begin() + 144, 8);
  std::fill(literals.begin() + 144, literals.begin() + 256, 9);
  std::fill(literals.begin() + 256, literals.begin() + 280, 7);
  std::fill(literals.begin() + 280, literals.end(), 8);
  std::array<unsigned char, 32> distances{};
  distances.fill(5);
  return {Code(literals, false), Code(distances, false)};
}

Codes read_codes(Bits& bits) {
  constexpr std::array<unsigned char, 19> order{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
  const std::size_t literals = bits.get(5) + 257, distances = bits.get(5) + 1, used = bits.get(4) + 4;
  if (literals > 286 || distances > 30) throw InflateError("its compressed data has too many symbols");
  std::array<unsigned char, 19> code_lengths{};
  for (std::size_t i = 0; i < used; ++i) code_lengths[order[i]] = static_cast<unsigned char>(bits.get(3));
  const Code code(code_lengths, true);

  std::vector<unsigned char> lengths;
  while (lengths.size() < literals + distances) {
    const unsigned symbol = code.read(bits);
    if (symbol < 16) {
      lengths.push_back(static_cast<unsigned char>(symbol));
      continue;
    }
    if (symbol == 16 && lengths.empty()) throw InflateError("its compressed data repeats a length before the first");
    const unsigned char value = symbol == 16 ? lengths.back() : 0;
    const std::size_t times = symbol == 16 ? 3 + bits.get(2) : symbol == 17 ? 3 + bits.get(3) : 11 + bits.get(7);
    lengths.insert(lengths.end(), times, value);
  }
  if (lengths.size() > literals + distances) throw InflateError("its compressed data has too many lengths");
  if (lengths[256] == 0) throw InflateError("its compressed data has a block that cannot end");
  const std::span<const unsigned char> all(lengths);
  return {Code(all.first(literals), true), Code(all.subspan(literals), true)};
}

void stored_block(Bits& bits, Window& window) {
  bits.to_byte();
  const unsigned length = bits.get(16), complement = bits.get(16);
  if ((length ^ complement) != 0xffff) throw InflateError("its compressed data has a block of doubtful length");
  for (unsigned i = 0; i < length; ++i) window.put(static_cast<unsigned char>(bits.get(8)));
}

void coded_block(Bits& bits, Window& window, const Codes& codes) {
  // Symbols 257.. stand for lengths, the second code's symbols for distances: a base and some extra bits each.
  constexpr std::array<unsigned short, 29> length_base{3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                                       31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
  constexpr std::array<unsigned char, 29> length_bits{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                      2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
  constexpr std::array<unsigned short, 30> distance_base{1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                                         33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                                         1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
  constexpr unsigned end_of_block = 256;
  for (;;) {
    const unsigned symbol = codes.literals.read(bits);
    if (symbol == end_of_block) return;
    if (symbol < end_of_block) {
      window.put(static_cast<unsigned char>(symbol));
      continue;
    }
    const unsigned which = symbol - 257;
    if (which >= length_base.size()) throw InflateError("its compressed data has an unknown length");
    const std::size_t length = length_base[which] + bits.get(length_bits[which]);
    const unsigned far = codes.distances.read(bits);
    if (far >= distance_base.size()) throw InflateError("its compressed data has an unknown distance");
    const std::size_t distance = distance_base[far] + bits.get(far < 4 ? 0 : far / 2 - 1);
    window.repeat(distance, length);
  }
}

}  // namespace

Inflated inflate(const std::function<std::size_t(unsigned char*, std::size_t)>& next,
                 const std::function<void(const unsigned char*, std::size_t)>& sink, std::uint64_t limit) {
  Bits bits(next);
  Window window(sink, limit);
  for (bool last = false; !last;) {
    last = bits.get(1) == 1;
    switch (bits.get(2)) {
      case 0:
        stored_block(bits, window);
        break;
      case 1:
        coded_block(bits, window, fixed_codes());
        break;
      case 2:
        coded_block(bits, window, read_codes(bits));
        break;
      default:
        throw InflateError("its compressed data has an unknown kind of block");
    }
  }
  const std::uint64_t written = window.finish();
  return {bits.read(), written};
}

}  // namespace tailor::tool
