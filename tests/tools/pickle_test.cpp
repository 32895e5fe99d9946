#include "tools/pickle.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "files.h"
#include "tools/archive.h"
#include "tools/load.h"
#include "tools/zip_directory.h"

namespace tailor::tool {
namespace {

using namespace std::string_literals;

// Words of a pickle. `counted` are numbers that a byte holds.
std::string counted(int value) { return "K"s + static_cast<char>(value); }
std::string word(const std::string& text) { return "X"s + static_cast<char>(text.size()) + "\0\0\0"s + text; }
std::string large(std::uint64_t value) {
  std::string bytes = "\x8a\x08";
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}
std::string tuple(const std::string& elements) { return "(" + elements + "t"; }

const std::string float_storage = "ctorch\nFloatStorage\n", rebuild = "ctorch._utils\n_rebuild_tensor_v2\n";

std::string storage(const std::string& count, const std::string& dtype = float_storage,
                    const std::string& device = "cpu") {
  return tuple(word("storage") + dtype + word("0") + word(device) + count) + "Q";
}

std::string tensor(const std::string& offset, const std::string& sizes, const std::string& strides,
                   const std::string& of = storage(counted(6))) {
  return rebuild + tuple(of + offset + tuple(sizes) + tuple(strides) + "\x89N"s) + "R";
}

// What is wrong with a pickle where tensor 0 has 24 bytes and no other is there.
std::string damage(const std::string& body) {
  const Data data = data_of("\x80\x02" + body + ".");
  try {
    check_pickle(data, [](const std::string& key) -> std::optional<std::uint64_t> {
      return key == "0" ? std::optional<std::uint64_t>(24) : std::nullopt;
    });
  } catch (const Damage& found) {
    return found.what();
  }
  return "nothing";
}

TEST(Pickle, TakesTensorsThatLieInTheirRecords) {
  EXPECT_EQ(damage(storage(counted(6))), "nothing");
  EXPECT_EQ(damage(tensor(counted(0), counted(2) + counted(3), counted(3) + counted(1))), "nothing");
  EXPECT_EQ(damage(tensor(counted(4), counted(2), counted(1))), "nothing");  // a view up to the end
  EXPECT_EQ(damage(tensor(counted(5), counted(99) + counted(99), counted(0) + counted(0))),
            "nothing");                                      // one, expanded
  EXPECT_EQ(damage(tensor(counted(0), "", "")), "nothing");  // a single number
  EXPECT_EQ(damage(tensor(counted(0), counted(0) + counted(3), counted(3) + counted(1), storage(counted(0)))),
            "nothing");
  EXPECT_EQ(damage(storage(counted(4), float_storage, "meta")), "nothing");  // no values at all
  EXPECT_EQ(damage(storage(counted(12), "ctorch\nHalfStorage\n")), "nothing");
  EXPECT_EQ(damage(storage(counted(1), "ctorch\nComplexDoubleStorage\n")), "nothing");  // and half an element left over
}

TEST(Pickle, RefusesTensorsThatReachBeyond) {
  for (const int count : {0x7f, 7, 5})
    EXPECT_SAYS(damage(storage(counted(count))), "but its record has 24 bytes") << count;
  EXPECT_SAYS(damage(storage(large(~std::uint64_t{0}))), "24 bytes");
  EXPECT_SAYS(damage(storage(large(std::uint64_t{1} << 62))), "24 bytes");  // 0 bytes, if that were to overflow
  EXPECT_SAYS(damage(storage(large(std::uint64_t{1} << 62), float_storage, "meta")), "impossible count");
  EXPECT_SAYS(damage(tuple(word("storage") + float_storage + word("1") + word("cpu") + counted(6)) + "Q"), "no record");
  const auto beyond = [](const std::string& offset, const std::string& sizes, const std::string& strides) {
    EXPECT_SAYS(damage(tensor(offset, sizes, strides)), "beyond its storage");
  };
  beyond(counted(0), counted(7), counted(1));
  beyond(counted(1), counted(6), counted(1));
  beyond(counted(0), counted(2), counted(6));
  beyond(counted(6), "", "");
  beyond(large(~std::uint64_t{0}), counted(1), counted(1));  // an offset of -1
  beyond(counted(0), large(~std::uint64_t{0}), counted(1));
  beyond(counted(5), counted(2), large(~std::uint64_t{4}));  // backwards
  beyond(counted(0), counted(3), large(std::uint64_t{1} << 63));
  beyond(counted(0), counted(5), large(std::uint64_t{1} << 62));                            // 2^64, which is 0
  beyond(counted(0), large(std::uint64_t{1} << 62) + counted(4), counted(0) + counted(0));  // so many elements
  beyond(counted(0), counted(2), counted(1) + counted(1));                                  // a stride too many
}

TEST(Pickle, RefusesOtherWaysToSayIt) {
  const std::string arguments =
      tuple(storage(counted(6)) + counted(0) + tuple(counted(99)) + tuple(counted(1)) + "\x89N"s);
  EXPECT_SAYS(damage(rebuild + "0"), "operation that torch does not write");
  EXPECT_SAYS(damage(rebuild + counted(0) + arguments + "R"), "calls what is no function");  // by its number
  EXPECT_SAYS(damage(rebuild + "ctorch\nByteStorage\n" + arguments + "R"),
              "calls what is no function");  // whose number is 0
  EXPECT_SAYS(damage("ctorch._tensor\n_rebuild_from_type_v2\n" + arguments + "R"), "only Python");
  EXPECT_SAYS(damage(rebuild + arguments + "b"), "beyond its storage");  // as good as R
  EXPECT_SAYS(damage(rebuild + counted(3) + "R"), "without a storage");
  EXPECT_SAYS(damage(tuple(word("storage") + counted(6) + word("0") + word("cpu") + counted(6)) + "Q"),
              "without a dtype");
  EXPECT_SAYS(damage(tuple(word("storage") + float_storage + word("0") + word("cpu") + float_storage) + "Q"),
              "without a count");
  EXPECT_SAYS(damage(storage(counted(6), "ctorch\nFloat\n")), "a kind of storage that torch does not read");
  EXPECT_SAYS(damage(storage(counted(6), "cother\nFloatStorage\n")), "a kind of storage that torch does not read");
  EXPECT_SAYS(damage(tuple(word("module")) + "Q"), "reference of another kind");
  EXPECT_EQ(damage(rebuild + "q\5" + arguments + "q\6R" + "h\5" + tuple(storage(counted(6))) + "h\6R"),
            damage(rebuild + arguments + "R"));
}

TEST(Pickle, RefusesWhatEndsEarlyOrIsNone) {
  EXPECT_SAYS(damage("t"), "mark in a wrong place");
  EXPECT_SAYS(damage("(e"), "mark in a wrong place");
  EXPECT_EQ(damage("](K\1\x85\x85\x85"
                   "e"),
            "nothing");
  EXPECT_SAYS(damage("]((\x81"
                     "e"),
              "mark in a wrong place");  // the mark stands above the stack
  EXPECT_SAYS(damage("}(K\1u"), "key without a value");
  EXPECT_SAYS(damage("\x86"), "takes more");
  EXPECT_SAYS(damage("Q"), "takes more");
  EXPECT_SAYS(damage("h\1"), "has not put away");
  EXPECT_SAYS(damage("Nr\xff\xff\xff\xff"s), "puts a value where torch does not");  // room for four billion
  EXPECT_SAYS(damage("X\xff\xff\xff\x7fshort"s), "ends early");
  EXPECT_SAYS(damage("cno line"), "ends early");
  EXPECT_SAYS(damage("\x8a\x09"), "another size");
  EXPECT_SAYS(damage("N.N"), "something follows");
  EXPECT_THROW(check_pickle(data_of("\x80\x04N."), {}), Damage);
  EXPECT_THROW(check_pickle({}, {}), Damage);
  EXPECT_EQ(damage(std::string(100'000, ']') + std::string(100'000, '\x85')), "nothing");  // nothing here recurses
}

// Everything that torch can put into an attribute, as torch writes it.
TEST(Pickle, TakesWhatTorchWrites) {
  torch::jit::Module module = example_module();
  const auto put = [&](const char* name, const at::Tensor& value) { module.register_buffer(name, value); };
  put("empty", at::empty({0, 3}));
  put("expanded", at::ones({1}).expand({5, 6}));
  put("view", at::arange(20).reshape({4, 5}).t().narrow(0, 1, 3));
  put("conjugate", at::randn({3}, at::kComplexFloat).conj());
  put("quantized", at::quantize_per_tensor(at::randn({7}), 0.1, 3, at::kQUInt8));
  put("channels", at::quantize_per_channel(at::randn({3, 4}), at::ones({3}), at::zeros({3}), 0, at::kQInt8));
  put("nibbles", at::quantize_per_channel(at::randn({3, 5}), at::ones({3}), at::zeros({3}), 0, at::kQUInt4x2));
  put("float8", at::ones({5}).to(at::kFloat8_e4m3fn));
  put("unsigned", at::ones({5}).to(at::kUInt16));
  put("sparse", at::eye(4).to_sparse());
  put("meta", at::empty({4}, at::TensorOptions(at::kMeta)));
  put("shared", module.attr("weight").toTensor().detach().narrow(0, 1, 1));
  module.register_attribute("large", c10::IntType::get(), std::int64_t{1} << 40);
  module.register_attribute("negative", c10::IntType::get(), -5);
  module.register_attribute("device", c10::DeviceObjType::get(), c10::Device("cpu"));
  module.register_attribute("complex", c10::ComplexType::get(), c10::complex<double>(1, 2));
  c10::Dict<std::string, at::Tensor> tensors;
  tensors.insert("a", at::ones({2}));
  module.register_attribute("tensors", c10::DictType::create(c10::StringType::get(), c10::TensorType::get()), tensors);
  module.register_attribute("list", c10::ListType::ofTensors(), c10::List<at::Tensor>({at::ones({1}), at::ones({2})}));
  const Data data = saved(module);
  EXPECT_NO_THROW(check_module_archive(MemoryBytes(data), "model.pt"));
}

// As Python writes what it knows to have one element.
TEST(Pickle, TakesSingleElements) {
  EXPECT_EQ(damage("]" + tensor(counted(0), counted(6), counted(1)) + "a"), "nothing");
  EXPECT_EQ(damage("}" + word("key") + tensor(counted(0), counted(6), counted(1)) + "s"), "nothing");
  EXPECT_SAYS(damage("]" + tensor(counted(0), counted(7), counted(1)) + "a"), "beyond its storage");
  EXPECT_SAYS(damage("Na"), "takes more");
  EXPECT_SAYS(damage("}Ns"), "takes more");
}

// Memory: what is put away far apart, and tuples that describe no tensor.
TEST(Pickle, HoldsOnlyWhatItAsksFor) {
  EXPECT_EQ(damage("(" + std::string(300, 'N') + "t"), "nothing");
  std::string ones;
  for (int i = 0; i < 300; ++i) ones += counted(1);
  const std::string sizes = tuple(ones);  // as good as any, but that they are more than a tensor has
  EXPECT_SAYS(damage(rebuild + tuple(storage(counted(6)) + counted(0) + sizes + sizes + "\x89N"s) + "R"),
              "without sizes");
}

TEST(Pickle, MayBeAsLargeAsItsFile) {
  torch::jit::Module module = example_module();
  module.register_attribute("floats", c10::ListType::ofFloats(), c10::List<double>());
  c10::List<double> floats;
  floats.resize(8'000'000);
  module.setattr("floats", floats);  // 72 MB
  const Data data = saved(module);
  EXPECT_NO_THROW(check_module_archive(MemoryBytes(data), "model.pt"));
}

class Pickles : public testing::Test {
 protected:
  std::string refused(const Data& data) {
    put(path, data);
    return failure_of(Exit::unreadable, [&] { ModelFile{path}; });
  }
  std::string refused(const std::string& record, const std::function<std::string(std::string)>& change) {
    return refused(with_record(saved(example_module()), record, change));
  }

  Folder folder;
  const std::string path = folder / "model.pt";
};

// torch loads this, and shows what lies behind the record in memory.
TEST_F(Pickles, ATensorShorterThanItsModuleSays) {
  EXPECT_SAYS(
      refused("data/0", [](std::string values) { return values.substr(0, 8); }),
      "damaged module: record 'data.pkl': its pickle says that tensor '0' has 6 elements, but its record has 8 bytes");
  EXPECT_SAYS(refused("data/0", [](std::string values) { return values + "more"; }), "has 28 bytes");
}

TEST_F(Pickles, CodeWhoseOriginIsDamaged) {
  const std::string name = "code/__torch__.py.debug_pkl";
  EXPECT_SAYS(refused(name, [](std::string) { return ""; }), "record '" + name + "': its pickle ends early");
  // Found by no check of ours, but by torch, when it is asked where a line came from.
  EXPECT_SAYS(refused(name, [](std::string) { return "\x80\x02N."s; }), "cannot be loaded");
}

TEST_F(Pickles, AModuleOfTheOldForm) {
  EXPECT_SAYS(refused(zip({zip_record("m/data.pkl", ""), zip_record("m/constants.pkl", ""),
                           zip_record("m/version", "3"), zip_record("m/model.json", "{}")})),
              "early version of torch");
}

}  // namespace
}  // namespace tailor::tool
