// Files for the tests of the command: a folder that goes away, zip archives with any lie in them, TorchScript modules.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/failure.h"

namespace torch::jit {
struct Module;
}

namespace tailor::tool {

using Data = std::vector<unsigned char>;

class Folder {
 public:
  Folder();
  ~Folder();
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::vector<std::string> names() const;  // of what lies in it

 private:
  std::string path_;
};

void put(const std::string& path, const Data& data);
void put(const std::string& path, const std::string& text);
Data get(const std::string& path);
Data data_of(const std::string& text);

// One record as a zip file has it, with every field that a test may want to be wrong.
struct ZipRecord {
  std::string name;
  Data data;
  std::uint16_t flags = 0, method = 0;
  std::uint32_t checksum = 0;  // of what the data becomes
  std::uint32_t stored = 0, size = 0, header = 0, attributes = 0;
  Data extra;  // in the directory only
  std::string local_name;
  std::uint16_t local_flags = 0;
  std::uint32_t local_size = 0;
};
ZipRecord zip_record(const std::string& name, const std::string& text);

struct ZipEnd {
  std::uint16_t disk = 0, entries = 0;
  std::uint32_t size = 0, begin = 0;
  std::string comment;
};

// The archive of these records. `mend` may change the records once their headers are placed, and the end.
Data zip(std::vector<ZipRecord> records, const std::function<void(std::vector<ZipRecord>&)>& mend = {},
         const std::function<void(ZipEnd&)>& mend_end = {});

// A module with parameters of several dtypes, a buffer and other attributes.
torch::jit::Module example_module();

// As the command writes it, with an extra file.
void save_as(const std::string& path, const torch::jit::Module& module);

// What torch::jit::Module::save writes.
Data saved(const torch::jit::Module& module, const std::unordered_map<std::string, std::string>& extra_files = {});

// A module whose __setstate__ has this body, so that it runs while the file is loaded.
Data saved_with_setstate(const std::string& body);

// The archive with this record's content replaced, and right again in every checksum.
Data with_record(const Data& archive, const std::string& name, const std::function<std::string(std::string)>& change);

// The failure of `work`, which must be of this kind and fit on one line.
std::string failure_of(Exit exit, const std::function<void()>& work);

testing::AssertionResult says(const std::string& message, const std::string& part);
#define EXPECT_SAYS(message, part) EXPECT_TRUE(says(message, part))

}  // namespace tailor::tool
