// Switches in the environment.
#pragma once
#include <cstdlib>
#include <string_view>

namespace tailor {

// Off where the variable is 0, on where it is anything else.
inline bool from_environment(const char* name, bool otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::string_view(value) != "0" : otherwise;
}

}  // namespace tailor
