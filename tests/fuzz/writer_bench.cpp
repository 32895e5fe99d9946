#include "writer_bench.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <sstream>

#include "tools/commands.h"

namespace tailor::fuzz {
namespace {

constexpr const char* input = "model.pt";
constexpr const char* other_folder = "there";

bool is_temporary(const std::string& name) { return name.find(".tailor-tmp-") != std::string::npos; }

std::string link_at(const std::string& path) {
  char text[PATH_MAX];
  const ssize_t size = readlink(path.c_str(), text, sizeof text);
  return size < 0 ? std::string() : std::string(text, static_cast<std::size_t>(size));
}

}  // namespace

const std::vector<Scene>& scenes() {
  static const std::vector<Scene> all = {
      {.name = "fuse, over old files"},
      {.name = "fuse and verify", .verify = true},
      {.name = "fuse in place", .in_place = true},
      {.name = "fuse, through symbolic links", .links = true},
      {.name = "unfuse, to new files", .command = tool::Command::unfuse, .old = false},
  };
  return all;
}

Bench::Bench(const Scene& scene)
    : scene_(scene), model_(originals().at(scene.command == tool::Command::unfuse ? 3 : 2).data) {
  const tool::Data old = tool::data_of("the old file");
  mkdir((folder_ / other_folder).c_str(), 0700);
  for (const char* name : {"report.json", "graph.svg", "out.pt"}) {
    Output output{.asked = name, .name = name, .old = std::nullopt, .link = {}, .fresh = {}};
    if (scene.old) output.old = old;
    const bool model = name == std::string("out.pt"), picture = name == std::string("graph.svg");
    if (picture && scene.command == tool::Command::unfuse) continue;
    if (scene.in_place && model) {
      output.asked = output.name = input;
      output.old = model_;
    }
    if (scene.links && !picture) {
      output.name = std::string(other_folder) + "/real-" + name;
      output.link = model ? output.name : folder_ / output.name;
      if (!model) output.old.reset();
    }
    outputs_.push_back(output);
  }
  reset();
  const std::string wrong = run();
  if (!wrong.empty()) throw std::runtime_error(wrong);
  for (Output& output : outputs_) output.fresh = without_id(output.name);
}

std::string Bench::run() {
  tool::Request request;
  request.command = scene_.command;
  request.input = folder_ / input;
  request.output = folder_ / (scene_.in_place ? input : "out.pt");
  request.report = folder_ / "report.json";
  request.verify = scene_.verify;
  if (scene_.verify) request.inputs = {"bfloat16[5,4]"};
  std::ostringstream out;
  try {
    if (scene_.command == tool::Command::fuse) {
      request.svg = folder_ / "graph.svg";
      tool::fuse(request, out);
    } else {
      tool::unfuse(request, out);
    }
    return {};
  } catch (const tool::Failure& failure) {
    return failure.what();
  } catch (const std::exception& error) {
    return std::string("not a failure that the command knows: ") + error.what();
  }
}

void Bench::reset() {
  for (const std::string& name : names()) unlink((folder_ / name).c_str());
  tool::put(folder_ / input, model_);
  for (const Output& output : outputs_) {
    const std::string path = folder_ / output.name;
    if (!output.link.empty() && symlink(output.link.c_str(), (folder_ / output.asked).c_str()) != 0)
      throw std::runtime_error("no link");
    if (!output.old) continue;
    tool::put(path, *output.old);
    chmod(path.c_str(), 0600);
  }
}

void Bench::renew_input() {
  if (scene_.in_place) tool::put(folder_ / input, model_);
}

// All but folders.
std::vector<std::string> Bench::names() const {
  std::vector<std::string> all = folder_.names();
  std::erase(all, other_folder);
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / other_folder))
    all.push_back(std::string(other_folder) + "/" + entry.path().filename().string());
  return all;
}

std::size_t Bench::temporary_files() const {
  return static_cast<std::size_t>(std::ranges::count_if(names(), is_temporary));
}

const Bench::Output* Bench::output_named(const std::string& name) const {
  const auto found = std::ranges::find(outputs_, name, &Output::name);
  return found == outputs_.end() ? nullptr : &*found;
}

std::string Bench::look(bool temporary_allowed, std::size_t& fresh) const {
  fresh = 0;
  for (const std::string& name : names()) {
    const bool asked = std::ranges::find(outputs_, name, &Output::asked) != outputs_.end();
    if (name == input || asked || output_named(name) != nullptr) continue;
    if (!is_temporary(name) || !temporary_allowed) return "'" + name + "' is left behind";
  }
  if (!scene_.in_place && tool::get(folder_ / input) != model_) return "the model that it read has changed";
  bool model = false;
  for (const Output& output : outputs_) {
    model = false;  // it comes last
    if (const std::string wrong = changed(output, model); !wrong.empty()) return "'" + output.name + "' " + wrong;
    fresh += model ? 1 : 0;
  }
  if (model && fresh != outputs_.size()) return "the model is there, and not all that was to be there before it";
  return {};
}

// What is wrong with one of them.
std::string Bench::changed(const Output& output, bool& fresh) const {
  const std::string path = folder_ / output.name;
  if (link_at(folder_ / output.asked) != output.link) return "was reached by a link, which is another one now";
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return output.old ? "is gone" : "";
  if (!S_ISREG(status.st_mode)) return "is no file";
  if (output.old && (status.st_mode & 077) != 0) return "may now be read by others";
  if (output.old && tool::get(path) == *output.old) return {};
  if (without_id(output.name) != output.fresh) return "is neither the old file nor the new one";
  fresh = true;
  return {};
}

// What the file holds. torch gives each archive that it writes a number of its own.
Contents Bench::without_id(const std::string& name) const {
  const tool::Data data = tool::get(folder_ / name);
  if (!name.ends_with(".pt")) return {{"", std::string(data.begin(), data.end())}};
  try {
    tool::check_module_archive(tool::MemoryBytes(data), name);
  } catch (const tool::Failure& failure) {
    return {{"damaged", failure.what()}};
  }
  Contents contents = as_torch_reads(data);
  contents.erase(".data/serialization_id");
  return contents;
}

}  // namespace tailor::fuzz
