// System calls of this program that fail when they are told to: those of our own code, not those of torch's libraries.
#pragma once
#include <cstdint>
#include <string>

namespace tailor::fuzz {

enum class Fault {
  none,
  error,      // the call fails with an errno
  for_good,   // and so do all of its kind from then on, as on a disk that is full
  stays,      // and from then on nothing can be removed
  part,       // read and write do half of what they are asked to; others work
  interrupt,  // EINTR, where a call may say that
  kill,       // the process ends before the call, as if by kill -9
};

// Of the calls of one kind so many count from the first on, and then each of so many: those that come by the hundred do
// not differ much.
void take_calls(std::uint64_t first, std::uint64_t each_of);

// The calls that count are counted from 0; the one with this number is struck.
void strike(std::uint64_t number, Fault what, int error);

struct Struck {
  bool happened = false;
  std::string call;         // such as "fsync"
  std::uint64_t calls = 0;  // since strike()
};
Struck disarm();

}  // namespace tailor::fuzz
