#include "load.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/cpu/Utils.h>
#include <caffe2/serialize/read_adapter_interface.h>
#include <dlfcn.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <array>

#include "failure.h"

namespace tailor::tool {
namespace {

// torch's reader over the file that was checked, not over its path.
class Adapter : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit Adapter(const Bytes& bytes) : bytes_(bytes) {}
  std::size_t size() const override { return bytes_.size(); }
  std::size_t read(std::uint64_t offset, void* into, std::size_t size, const char*) const override {
    if (offset >= bytes_.size()) return 0;
    size = std::min<std::uint64_t>(size, bytes_.size() - offset);
    bytes_.read(offset, {static_cast<unsigned char*>(into), size});
    return size;
  }

 private:
  const Bytes& bytes_;
};

torch::jit::Module read(const Bytes& bytes, std::optional<c10::Device> device) {
  return torch::jit::load(std::make_shared<Adapter>(bytes), device);
}

// Whether nothing but the devices that a file names stands in the way.
bool loads_on_cpu(const Bytes& bytes) {
  try {
    read(bytes, c10::Device(c10::kCPU));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// torch reads where code came from when somebody asks, which may be long after the module was loaded: so all that may be
// asked is asked here. That a place lies outside its text says nothing against it: what torch makes up itself, such as
// the ops of an LSTM or `x.T`, comes from the characters 0 to 1 of an empty text.
void read_origins(const torch::jit::Block* block) {
  for (const torch::jit::Node* node : block->nodes()) {
    const auto origin = node->sourceRange().findSourceRangeThatGenerated();
    const torch::jit::SourceRange range = origin ? *origin : node->sourceRange();
    range.file_line_col();
    if (range.source()) {
      range.token_text();
      range.text().str();
      // As an error message shows it, with the lines around it. In bounds it is safe, and would take long for all.
      if (range.start() > range.end() || range.end() > range.source()->size()) range.str();
    }
    for (const torch::jit::Block* inner : node->blocks()) read_origins(inner);
  }
}

void read_origins(const std::vector<torch::jit::Function*>& functions) {
  for (torch::jit::Function* function : functions) {
    if (auto* const graph = torch::jit::tryToGraphFunction(*function)) read_origins(graph->graph()->block());
  }
}

// torch's operators that write to a file that they open themselves, or map one so that others may.
bool opens_files(const torch::jit::Block* block) {
  const auto opens = [](const torch::jit::Node* node) {
    if (node->kind() == c10::aten::save || node->kind() == c10::aten::from_file) return true;
    if (node->hasAttribute(c10::attr::Subgraph) && opens_files(node->g(c10::attr::Subgraph)->block())) return true;
    return std::any_of(node->blocks().begin(), node->blocks().end(), opens_files);
  };
  return std::any_of(block->nodes().begin(), block->nodes().end(), opens);
}

bool opens_files(torch::jit::Function* function) {
  auto* const graph = torch::jit::tryToGraphFunction(*function);
  return graph && opens_files(graph->graph()->block());
}

// What is run while a file is loaded, and while it is saved, may do something else the second time, where nothing confines it: so
// its code is read. What it calls is not followed: there are operators, too, that call methods.
void refuse_writers(const std::vector<torch::jit::Function*>& functions) {
  const bool has_eager = std::any_of(functions.begin(), functions.end(), [](const torch::jit::Function* function) {
    return function->name() == "__setstate__" || function->name() == "__getstate__";
  });
  const auto is_writer = [](torch::jit::Function* function) { return opens_files(function); };
  if (has_eager && std::any_of(functions.begin(), functions.end(), is_writer))
    throw std::runtime_error("its code writes a file while it is loaded");
}

// The text between two marks, or nothing.
std::string between(const std::string& text, const std::string& before, const std::string& after) {
  const auto begin = text.find(before);
  if (begin == std::string::npos) return {};
  const auto end = text.find(after, begin + before.size());
  return text.substr(begin + before.size(), end == std::string::npos ? end : end - begin - before.size());
}

// torch's message with what to do about it.
std::string explain(const std::string& message) {
  std::string name = between(message, "Unknown builtin op: ", ".");
  if (name.empty()) name = between(message, "__torch__.torch.classes.", "'");
  if (name.empty()) return message;
  if (name.starts_with("tailor::"))
    return "it was fused by another version of Tailor: '" + name + "' is not known to this one";
  if (name.starts_with("aten::") || name.starts_with("prim::"))
    return "it calls '" + name +
           "', which this torch does not have: it comes from another version of torch, or is damaged";
  return "it needs the library that defines '" + name + "': name its file with --library";
}

// Of arguments that do not fit, torch says for which op only further down.
[[noreturn]] void rethrow(const std::exception& error) {
  const std::string text = error.what();
  const std::string name = between(text, "tailor::", "(");
  if (text.find("Arguments for call are not valid") == std::string::npos || name.empty()) throw;
  throw std::runtime_error("it was fused by another version of Tailor: it calls 'tailor::" + name +
                           "' with other arguments than this one knows");
}

// What torch reads from the system when it is first asked, which it cannot in the child: what this processor can do, which packed weights
// depend on, and where random numbers begin.
void open_ahead() {
  at::cpu::get_cpu_capabilities();
  at::globalContext().defaultGenerator(at::kCPU);
}

Limits allowed(const Archive& archive, const Limits& limits) {
  constexpr std::uint64_t slow_disk = 20 << 20;  // bytes a second
  Limits sum = limits;
  sum.memory += 3 * archive.size();  // the bytes, the tensors, and a copy in passing
  sum.seconds += static_cast<unsigned>(archive.size() / slow_disk);
  return sum;
}

}  // namespace

ModelFile::ModelFile(const std::string& path, const Advance& advance, Trial first, const Limits& limits)
    : path_(path), bytes_(path), archive_(check_module_archive(bytes_, path, advance)) {
  if (first == Trial::yes) try_in_child(limits);
  caffe2::serialize::PyTorchStreamReader reader(std::make_shared<Adapter>(bytes_));
  for (const std::string& name : archive_.below("extra/")) {
    const auto [data, size] = reader.getRecord("extra/" + name);
    extra_files_[name].assign(static_cast<const char*>(data.get()), size);
  }
}

void ModelFile::try_in_child(const Limits& limits) const {
  // Always to the CPU: the same parser runs, and CUDA reserves more address space than any limit would allow.
  const auto work = [&] {
    at::set_num_threads(1);  // the pool's threads are not in the child
    try {
      const torch::jit::Module module = read(bytes_, c10::Device(c10::kCPU));
      const auto functions = module._ivalue()->compilation_unit()->get_functions();
      read_origins(functions);
      refuse_writers(functions);
    } catch (const std::exception& error) {
      rethrow(error);
    }
  };
  open_ahead();
  if (const auto wrong = trial(work, allowed(archive_, limits))) {
    throw Failure(Exit::unreadable, path_ + ": cannot be loaded: " + explain(*wrong));
  }
}

torch::jit::Module ModelFile::load(Place place) const {
  std::optional<c10::Device> device;
  if (place == Place::cpu) device = c10::Device(c10::kCPU);
  try {
    torch::jit::Module module = read(bytes_, device);
    bytes_.require_unchanged();
    return module;
  } catch (const Failure&) {
    throw;
  } catch (const std::exception& error) {
    bytes_.require_unchanged();
    if (device || !loads_on_cpu(bytes_))
      throw Failure(Exit::unreadable, path_ + ": cannot be loaded: " + one_line(error));
    throw Failure(Exit::unreadable, path_ + ": cannot be loaded on the devices it was saved from: " + one_line(error) +
                                        "; run this where they are, or add --device cpu to write CPU tensors");
  }
}

std::vector<std::string> ModelFile::foreign_records() const {
  // The inputs that a module was traced with describe the old graph, and only a debugging aid of torch reads them.
  constexpr std::array files{"data.pkl", "constants.pkl", "version", "byteorder", "traced_inputs.pkl"};
  constexpr std::array folders{"data/", "constants/", "code/", "extra/", ".data/", "traced_inputs/"};
  std::vector<std::string> foreign;
  for (const Record& record : archive_.records) {
    const bool known = std::find(files.begin(), files.end(), record.name) != files.end() ||
                       std::any_of(folders.begin(), folders.end(),
                                   [&](const char* folder) { return record.name.starts_with(folder); });
    if (!known) foreign.push_back(record.name);
  }
  return foreign;
}

void load_library(const std::string& path) {
  // A bare name would be searched for in the system's folders; the user means a file.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  if (dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw Failure(Exit::unreadable, path + ": cannot be loaded as a library: " + printable(dlerror()) +
                                        "; --library takes a shared library with the ops that the model calls");
  }
}

}  // namespace tailor::tool
