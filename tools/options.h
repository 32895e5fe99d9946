// What the user asked for. Every option of the command stands in one table, from which both the parser and the help
// texts are made.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "place.h"

namespace tailor::tool {

enum class Command { help, version, fuse, inspect, unfuse };

// `--expect NAME=COUNT`: so many sites of a rule, or the file is not written.
struct Expectation {
  std::string rule;
  std::size_t count = 0;
};

struct Request {
  Command command = Command::help;
  Command topic = Command::help;  // of help; help itself means the whole command
  std::string input, output;
  std::vector<std::string> libraries, rules;
  std::vector<Expectation> expectations;
  std::vector<std::string> inputs;
  std::string input_file, report, svg;
  std::uint64_t seed = 0;
  bool settle = false, verify = true;
  Place place = Place::as_saved;
};

// `arguments` without the program's name; `rules` are the names that --rule and --expect may give. Throws Failure
// (Exit::wrong_use).
Request parse(const std::vector<std::string>& arguments, const std::vector<std::string>& rules);

std::string help(Command topic, const std::vector<std::string>& rules);

}  // namespace tailor::tool
