// Which Tailor this is, and which torch it was built with and runs with.
#pragma once
#include <string>

namespace tailor {

const char* version();
std::string built_with_torch();    // such as "2.11.0"
std::string running_with_torch();  // the torch in this process

}  // namespace tailor
