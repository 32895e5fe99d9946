// With TAILOR_LOG=1, says once for each op and reason why a call ran the reference instead of a kernel.
#pragma once
#include <string_view>

namespace tailor {

void note_refusal(std::string_view op, std::string_view reason);

}  // namespace tailor
