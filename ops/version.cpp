#include "version.h"

#include <c10/util/Exception.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/version.h>

#include <cstdint>
#include <string>

#include "second_copy.h"

namespace tailor {
namespace {

// Of the numbers 2, 11 and 0 one byte each, from the highest down. at::show_config() has the version too, but asks the driver for
// GPUs: a process that has loaded Tailor, and forks, would leave its children none.
std::string words_of(std::uint64_t version) {
  const auto part = [&](int shift) { return std::to_string(version >> shift & 0xff); };
  return part(56) + "." + part(48) + "." + part(40);
}

// torch keeps no binary interface between versions: what follows may be a crash, so this is said before it.
const bool reported = [] {
  if (!is_second_copy() && running_with_torch() != built_with_torch()) {
    TORCH_WARN("Tailor ", version(), " was built with torch ", built_with_torch(), " and is running with torch ",
               running_with_torch(), ". Build it with the torch that it runs with.");
  }
  return true;
}();

}  // namespace

const char* version() { return TAILOR_VERSION; }
std::string built_with_torch() { return TORCH_VERSION; }
std::string running_with_torch() { return words_of(aoti_torch_abi_version()); }

}  // namespace tailor
