// What the coverage-guided fuzzer runs. No torch in it: the reader checks a file before torch sees it.
#pragma once
#include <cstdint>
#include <span>

namespace tailor::fuzz {

// The checksum that every record has to a reader under test.
constexpr std::uint32_t right_checksum = 0x31415926;

// Returns where the reader refuses the bytes or accepts them; ends the process where something is wrong, or where the
// reader holds more memory than such bytes can need.
void run_reader(std::span<const unsigned char> input);

// Bytes that it held at once, of all inputs so far.
std::uint64_t reader_held_at_most();

}  // namespace tailor::fuzz
