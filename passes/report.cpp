#include <algorithm>
#include <cstdio>

#include "tailor/tailor.h"

namespace tailor {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      result += escape;
    } else {
      result += c;
    }
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
