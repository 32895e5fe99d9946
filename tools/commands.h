// What `tailor fuse`, `tailor inspect` and `tailor unfuse` do.
#pragma once
#include <iosfwd>

#include "options.h"

namespace tailor::tool {

// Readable text goes to `out`. Throws Failure; then nothing was written.
void fuse(const Request& request, std::ostream& out);
void inspect(const Request& request, std::ostream& out);
void unfuse(const Request& request, std::ostream& out);

}  // namespace tailor::tool
