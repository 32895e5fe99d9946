// How the command ends when something is wrong: one line for the user and an exit status for scripts.
#pragma once
#include <stdexcept>
#include <string>

namespace tailor::tool {

enum class Exit {
  done = 0,
  fault = 1,
  wrong_use = 2,
  unreadable = 3,
  verification = 4,
  expectation = 5,
  not_written = 6
};

struct Failure : std::runtime_error {
  Failure(Exit exit_, const std::string& message) : std::runtime_error(message), exit(exit_) {}
  Exit exit;
};

// Prints it, printable and on one line, and gives the status to exit with. All failures are printed here, so that what is
// put into a Failure may hold any name of a file as it is.
int tell(const Failure& failure);

// What an exception has to say, as one printable line. torch's exceptions carry traces and advice after it, or before
// it when TorchScript's interpreter raised them.
std::string one_line(const std::exception& error);

// Text that came out of a file, made safe for a terminal: control characters, and bytes that are not UTF-8, are shown
// as \x1b, and a long text is cut.
std::string printable(const std::string& text);

// The same for a name that the user gave: never cut.
std::string whole(const std::string& text);

// What the last failed system call of this thread says, such as "No space left on device".
std::string system_error();

}  // namespace tailor::tool
