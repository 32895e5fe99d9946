#include "version.h"

#include <ATen/Version.h>
#include <torch/version.h>

#include <string_view>

namespace tailor {
namespace {

// torch has no C++ function for its version, but its description of itself holds `TORCH_VERSION=2.11.0, `.
std::string read_version(std::string_view description) {
  constexpr std::string_view key = "TORCH_VERSION=";
  const auto found = description.find(key);
  if (found == std::string_view::npos) return "of unknown version";
  const auto begin = found + key.size();
  return std::string(description.substr(begin, description.find_first_of(", \n", begin) - begin));
}

// torch keeps no binary interface between versions: what follows may be a crash, so this is said before it.
const bool reported = [] {
  if (running_with_torch() != built_with_torch()) {
    TORCH_WARN("Tailor ", version(), " was built with torch ", built_with_torch(), " and is running with torch ",
               running_with_torch(), ". Build it with the torch that it runs with.");
  }
  return true;
}();

}  // namespace

const char* version() { return TAILOR_VERSION; }
std::string built_with_torch() { return TORCH_VERSION; }
std::string running_with_torch() { return read_version(at::show_config()); }

}  // namespace tailor
