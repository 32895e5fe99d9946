#include "version.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <link.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/version.h>

#include <cstdint>
#include <string>
#include <vector>

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

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The files of this process's libraries that are called as ours is or as it is when it is built.
std::vector<std::string> namesakes(const std::string& own) {
  std::vector<std::string> paths;
  const auto visit = [&](const char* path) {
    const std::string name = file_name(path);
    if (path != own && (name == file_name(own) || name.starts_with("libtailor."))) paths.emplace_back(path);
  };
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        (*static_cast<decltype(visit)*>(data))(info->dlpi_name);
        return 0;
      },
      const_cast<void*>(static_cast<const void*>(&visit)));
  return paths;
}

}  // namespace

bool is_second_copy() {
  static const bool is_second = [] {
    if (!c10::Dispatcher::singleton().findSchema({"tailor::calls", ""})) return false;
    Dl_info here{};
    const std::string own =
        dladdr(reinterpret_cast<const void*>(&is_second_copy), &here) != 0 ? here.dli_fname : "another file";
    const auto others = namesakes(own);
    TORCH_WARN("Tailor is loaded already", others.size() == 1 ? ", from " + others[0] : "", ". A second copy of it, ",
               own, ", does nothing: load one of them only.");
    return true;
  }();
  return is_second;
}

const char* version() { return TAILOR_VERSION; }
std::string built_with_torch() { return TORCH_VERSION; }
std::string running_with_torch() { return words_of(aoti_torch_abi_version()); }

}  // namespace tailor
