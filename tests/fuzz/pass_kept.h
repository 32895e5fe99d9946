// Models in files.
#pragma once
#include "pass_model.h"

namespace tailor::fuzz {

// Sorted by name.
std::vector<std::string> files_in(const std::string& folder);

Model model_in(const std::string& file);

// Throws where that is not the same model.
Model written_and_read(const Model& model);

}  // namespace tailor::fuzz
