// What the programs here that are written in C++ have in common: arguments, a clock, and the record that they leave for
// docs/trust.md. Knows no torch.
//
//   --count N    how much to do              --seed S       what is drawn
//   --seconds T  no longer than this         --json FILE    where to put the record
//
// A limit of 0 is none. Where time ends a run before it has done so many, it says so, and its record has what was asked for.
// The exit status is 0 where nothing failed, 1 where something did, 2 for wrong arguments.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace tailor::fuzz {

class Arguments {
 public:
  // `values`: the options of this program that take a value, and what that is where nothing is said; where that is a number
  // it has to be one. `flags` take none. Prints the usage and ends the program where the words are something else.
  Arguments(int count, char** words, std::map<std::string, std::string> values,
            const std::set<std::string>& flags = {});

  std::int64_t number(const std::string& name) const;
  const std::string& text(const std::string& name) const { return values_.at(name); }
  bool has(const std::string& flag) const { return flags_.contains(flag); }
  std::int64_t count() const { return number("count"); }
  std::uint64_t seed() const { return static_cast<std::uint64_t>(number("seed")); }
  double seconds() const { return static_cast<double>(number("seconds")); }
  const std::string& json() const { return text("json"); }

  const std::string& command() const { return command_; }  // as it was called, without --json

 private:
  std::map<std::string, std::string> values_;
  std::set<std::string> flags_;
  std::string command_;
};

class Clock {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

using Counts = std::map<std::string, std::int64_t>;
using Table = std::map<std::string, Counts>;

struct Record {
  std::string title, what, command;
  double seconds = 0;
  Counts counts;
  Counts asked;  // how many of those that were asked for; 0 where as many as there are, or as fit the time
  std::map<std::string, Table> tables;
  std::int64_t failures = 0;
};

std::string to_json(const Record& record);

// To `path`, unless that is empty, and a line for each count that is less than was asked for. What main returns then.
int finish(const Record& record, const std::string& path);

}  // namespace tailor::fuzz
