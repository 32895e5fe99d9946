#include "files.h"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <ftw.h>
#include <torch/csrc/jit/serialization/export.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tools/crc32.h"
#include "tools/save.h"

namespace tailor::tool {
namespace fs = std::filesystem;

Folder::Folder() {
  std::string pattern = fs::temp_directory_path() / "tailor-test-XXXXXX";
  path_ = mkdtemp(pattern.data());
}

// Not std::filesystem::remove_all: libtorch.so exports one that crashes (staged_file.cpp).
Folder::~Folder() {
  const auto remove_one = [](const char* path, const struct stat*, int, struct FTW*) { return remove(path); };
  nftw(path_.c_str(), remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

std::vector<std::string> Folder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

void put(const std::string& path, const Data& data) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data.data()), static_cast<long>(data.size()));
}

void put(const std::string& path, const std::string& text) { put(path, data_of(text)); }

Data get(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Data data_of(const std::string& text) { return {text.begin(), text.end()}; }

ZipRecord zip_record(const std::string& name, const std::string& text) {
  ZipRecord record;
  record.name = record.local_name = name;
  record.data = data_of(text);
  record.checksum = crc32(0, text.data(), text.size());
  record.stored = record.size = record.local_size = static_cast<std::uint32_t>(text.size());
  return record;
}

namespace {

class Writer {
 public:
  Writer& two(std::uint16_t value) { return number(value, 2); }
  Writer& four(std::uint32_t value) { return number(value, 4); }
  Writer& bytes(const Data& data) {
    data_.insert(data_.end(), data.begin(), data.end());
    return *this;
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(data_.size()); }
  const Data& data() const { return data_; }

 private:
  Writer& number(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) data_.push_back(static_cast<unsigned char>(value >> (8 * i)));
    return *this;
  }
  Data data_;
};

std::uint16_t short_size(std::size_t size) { return static_cast<std::uint16_t>(size); }

}  // namespace

Data zip(std::vector<ZipRecord> records, const std::function<void(std::vector<ZipRecord>&)>& mend,
         const std::function<void(ZipEnd&)>& mend_end) {
  Writer out;
  std::uint32_t at = 0;
  for (ZipRecord& record : records) {
    record.header = at;
    record.local_flags = record.flags;
    at += 30 + static_cast<std::uint32_t>(record.local_name.size() + record.data.size());
  }
  if (mend) mend(records);
  for (const ZipRecord& record : records) {
    out.four(0x04034b50).two(20).two(record.local_flags).two(record.method).four(0).four(record.checksum);
    out.four(record.stored).four(record.local_size).two(short_size(record.local_name.size())).two(0);
    out.bytes(data_of(record.local_name)).bytes(record.data);
  }
  ZipEnd end;
  end.begin = out.size();
  for (const ZipRecord& record : records) {
    out.four(0x02014b50).two(20).two(20).two(record.flags).two(record.method).four(0).four(record.checksum);
    out.four(record.stored).four(record.size).two(short_size(record.name.size())).two(short_size(record.extra.size()));
    out.two(0)
        .two(0)
        .two(0)
        .four(record.attributes)
        .four(record.header)
        .bytes(data_of(record.name))
        .bytes(record.extra);
  }
  end.size = out.size() - end.begin;
  end.entries = short_size(records.size());
  if (mend_end) mend_end(end);
  out.four(0x06054b50).two(end.disk).two(end.disk).two(end.entries).two(end.entries).four(end.size).four(end.begin);
  out.two(short_size(end.comment.size())).bytes(data_of(end.comment));
  return out.data();
}

torch::jit::Module example_module() {
  torch::jit::Module module("Example");
  module.register_parameter("weight", at::arange(6, at::kFloat).reshape({2, 3}).requires_grad_(), false);
  module.register_parameter("half", at::arange(5, at::kHalf), false);
  module.register_buffer("count", at::full({}, 7, at::kLong));
  module.register_attribute("names", c10::ListType::ofStrings(), c10::List<std::string>({"a", "b"}));
  module.register_attribute("factor", c10::FloatType::get(), 0.5);
  module.define(R"(
def forward(self, x):
    y = torch.linear(x, self.weight)
    if bool(y.sum() > 0):
        y = y * self.factor
    return torch.relu(y)
)");
  return module;
}

Data saved(const torch::jit::Module& module, const torch::jit::ExtraFilesMap& extra_files) {
  Data data;
  const auto sink = [&](const void* bytes, std::size_t size) {
    const auto* begin = static_cast<const unsigned char*>(bytes);
    data.insert(data.end(), begin, begin + size);
    return size;
  };
  torch::jit::ExportModule(module, sink, extra_files);
  return data;
}

Data saved_with_setstate(const std::string& body) {
  torch::jit::Module module("Eager");
  module.register_attribute("state", c10::IntType::get(), 1);
  module.define("def __getstate__(self) -> int:\n    return self.state\n");
  module.define("def __setstate__(self, state: int) -> None:\n    self.state = state\n" + body);
  return saved(module);
}

Data with_record(const Data& archive, const std::string& name, const std::function<std::string(std::string)>& change) {
  std::istringstream in(std::string(archive.begin(), archive.end()));
  caffe2::serialize::PyTorchStreamReader reader(&in);
  std::vector<ZipRecord> records;
  for (const std::string& each : reader.getAllRecords()) {
    const auto [data, size] = reader.getRecord(each);
    const std::string text(static_cast<const char*>(data.get()), size);
    records.push_back(zip_record("m/" + each, each == name ? change(text) : text));
  }
  return zip(records);
}

std::string failure_of(Exit exit, const std::function<void()>& work) {
  try {
    work();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.exit, exit) << failure.what();
    EXPECT_EQ(std::string(failure.what()).find('\n'), std::string::npos) << failure.what();
    return failure.what();
  }
  ADD_FAILURE() << "nothing failed";
  return {};
}

testing::AssertionResult says(const std::string& message, const std::string& part) {
  if (message.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << message << "' does not say '" << part << "'";
}

void save_as(const std::string& path, const torch::jit::Module& module) {
  StagedFile file(path);
  save(module, {{"note.txt", "hello"}}, Place::cpu, file);
  commit({&file});
}

}  // namespace tailor::tool
