#include "second_copy.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <link.h>

#include <string>
#include <vector>

namespace tailor {
namespace {

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

}  // namespace tailor
