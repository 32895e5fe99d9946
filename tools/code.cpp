// Whether the code of a file calls Tailor's ops: as text, for torch asks for an op wherever it is named, be it in a method that nobody calls
// of a class of which there is no object.
#include <algorithm>
#include <cctype>
#include <string_view>

#include "load.h"

namespace tailor::tool {
namespace {

bool continues_a_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

// Behind the literal that begins at `at`.
std::size_t behind_string(std::string_view code, std::size_t at) {
  const char quote = code[at++];
  while (at < code.size() && code[at] != quote) at += code[at] == '\\' ? 2 : 1;
  return at + 1;
}

// But for what is in strings and comments, and for an attribute that is called as we are.
bool calls_tailor(std::string_view code) {
  for (std::size_t at = 0; at < code.size();) {
    if (code[at] == '"' || code[at] == '\'') {
      at = behind_string(code, at);
    } else if (code[at] == '#') {
      at = std::min(code.find('\n', at), code.size());
    } else if (code.substr(at).starts_with("ops.tailor.") && (at == 0 || !continues_a_name(code[at - 1]))) {
      return true;
    } else {
      ++at;
    }
  }
  return false;
}

}  // namespace

bool ModelFile::needs_tailor() const {
  return std::any_of(archive_.records.begin(), archive_.records.end(), [&](const Record& record) {
    if (!record.name.starts_with("code/") || !record.name.ends_with(".py")) return false;
    const auto code = content(bytes_, record);
    return calls_tailor({reinterpret_cast<const char*>(code.data()), code.size()});
  });
}

}  // namespace tailor::tool
