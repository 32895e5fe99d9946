#include "pass_kept.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "pass_text.h"

namespace tailor::fuzz {

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

Model model_in(const std::string& file) {
  std::ifstream in(file);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) throw std::runtime_error("cannot read '" + file + "'");
  try {
    return read_model(text.str());
  } catch (const std::exception& error) {
    throw std::runtime_error(file + ", " + error.what());
  }
}

Model written_and_read(const Model& model) {
  const std::string text = description_of(model, {});
  Model again = read_model(text);
  again.doors = model.doors;
  if (description_of(again, {}) != text) throw std::runtime_error("a model is another once it is read back");
  return again;
}

}  // namespace tailor::fuzz
