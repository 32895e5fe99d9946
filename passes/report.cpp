#include <algorithm>
#include <cstdio>

#include "tailor/tailor.h"
#include "utf8.h"

namespace tailor {
namespace {

// JSON is UTF-8: bytes that are not, in the name of a source file say, are written as people see them.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const auto [length, code] = character_at(text, at);
    const char c = text[at];
    if (length == 0) {
      result += '\\' + spoken_byte(c);
    } else if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (code < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(code));
      result += escape;
    } else {
      result.append(text, at, length);
    }
    at += std::max<std::size_t>(length, 1);
  }
  return result + "\"";
}

}  // namespace

std::size_t Report::fused() const {
  return static_cast<std::size_t>(
      std::count_if(sites.begin(), sites.end(), [](const Site& site) { return site.fused; }));
}

std::string Report::json() const {
  std::string result = "{\"tailor\": " + quoted(version()) + ", \"sites\": [";
  const char* separator = "";
  for (const Site& site : sites) {
    result += separator;
    result += "{\"rule\": " + quoted(site.rule) + ", \"method\": " + quoted(site.method) +
              ", \"source\": " + quoted(site.source) + ", \"fused\": " + (site.fused ? "true" : "false") +
              ", \"reason\": " + quoted(site.reason) + "}";
    separator = ", ";
  }
  return result + "]}";
}

}  // namespace tailor
