// A process may come to load the library twice, from two files: a build tree's and an installed one. torch takes no op
// twice and says so by an exception, which nobody can catch while a library is being loaded.
#pragma once

namespace tailor {

// Whether this copy of the library came second. It then registers nothing, says so once, and the first one goes on. To be
// asked before anything is registered; hidden, so that each copy asks itself.
[[gnu::visibility("hidden")]] bool is_second_copy();

}  // namespace tailor
