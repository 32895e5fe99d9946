// Where a file's tensors go. A file names the device of each tensor, and a module that is read to another device and
// saved again names that one: so what will be written is read as saved.
#pragma once

namespace tailor::tool {

enum class Place { as_saved, cpu };

}  // namespace tailor::tool
