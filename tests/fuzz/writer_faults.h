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

// Whether all calls count, or of those of one kind the first eight and every sixteenth.
void take_every_call(bool all);

// The calls are counted from 0; the one with this number is struck.
void strike(std::uint64_t number, Fault what, int error);

struct Struck {
  bool happened = false;
  std::string call;         // such as "fsync"
  std::uint64_t calls = 0;  // since strike()
};
Struck disarm();

}  // namespace tailor::fuzz
