#include "program.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "tools/failure.h"
#include "tools/staged_file.h"

namespace tailor::fuzz {
namespace {

std::optional<std::int64_t> number_in(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned char>(c));
    if (c == '"' || c == '\\')
      result += std::string("\\") + c;
    else if (static_cast<unsigned char>(c) < 0x20)
      result += escaped;
    else
      result += c;
  }
  return result + '"';
}

std::string json(std::int64_t number) { return std::to_string(number); }

template <class Value>
std::string json(const std::map<std::string, Value>& values) {
  std::string text;
  for (const auto& [name, value] : values) text += (text.empty() ? "" : ", ") + quoted(name) + ": " + json(value);
  return "{" + text + "}";
}

}  // namespace

Arguments::Arguments(int count, char** words, std::map<std::string, std::string> values,
                     const std::set<std::string>& flags)
    : values_(std::move(values)) {
  values_.insert({{"count", "0"}, {"seed", "1"}, {"seconds", "0"}, {"json", ""}});
  const std::string path = words[0], program = path.substr(path.rfind('/') + 1);
  const auto refuse = [&](const std::string& why) {
    std::string usage = "usage: " + program;
    for (const std::string& flag : flags) usage += " [--" + flag + "]";
    for (const auto& [name, value] : values_) usage += " [--" + name + " " + (number_in(value) ? "N" : "TEXT") + "]";
    std::fprintf(stderr, "%s: %s\n%s\n", program.c_str(), why.c_str(), usage.c_str());
    std::exit(2);
  };
  command_ = program;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i], name = word.substr(0, 2) == "--" ? word.substr(2) : "";
    if (flags.contains(name)) {
      flags_.insert(name);
      command_ += " " + word;
      continue;
    }
    const auto option = values_.find(name);
    if (option == values_.end()) refuse("there is no '" + word + "'");
    if (++i == count) refuse(word + " lacks its value");
    if (number_in(option->second) && number_in(words[i]).value_or(-1) < 0)
      refuse(word + " takes a number from 0 on, got '" + words[i] + "'");
    option->second = words[i];
    if (name != "json") command_ += " " + word + " " + words[i];
  }
  try {  // better now than after hours
    if (!json().empty()) tool::require_writable(json());
  } catch (const tool::Failure& failure) {
    refuse(failure.what());
  }
}

std::int64_t Arguments::number(const std::string& name) const { return number_in(values_.at(name)).value(); }

std::string to_json(const Record& record) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", record.seconds);
  return "{\"title\": " + quoted(record.title) + ",\n \"what\": " + quoted(record.what) +
         ",\n \"command\": " + quoted(record.command) + ",\n \"seconds\": " + seconds +
         ",\n \"counts\": " + json(record.counts) + ",\n \"asked\": " + json(record.asked) +
         ",\n \"tables\": " + json(record.tables) + ",\n \"failures\": " + json(record.failures) + "}\n";
}

int finish(const Record& record, const std::string& path) {
  for (const auto& [name, asked] : record.asked) {
    const auto found = record.counts.find(name);
    const std::int64_t done = found == record.counts.end() ? 0 : found->second;
    if (done < asked)
      std::printf("stopped short: %lld of %lld %s\n", static_cast<long long>(done), static_cast<long long>(asked),
                  name.c_str());
  }
  if (!path.empty()) {
    std::ofstream file(path);
    file << to_json(record);
    if (!file.flush()) {
      std::fprintf(stderr, "%s: cannot write '%s'\n", record.command.c_str(), path.c_str());
      return 2;
    }
  }
  return record.failures == 0 ? 0 : 1;
}

}  // namespace tailor::fuzz
