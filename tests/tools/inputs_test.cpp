#include "tools/inputs.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "files.h"

namespace tailor::tool {
namespace {

TEST(ParseInput, ReadsTypeAndSizes) {
  EXPECT_EQ(parse_input("float32[16,8192]").dtype, at::kFloat);
  EXPECT_EQ(parse_input("float32[16, 8192]").sizes, (std::vector<int64_t>{16, 8192}));
  EXPECT_EQ(parse_input("bfloat16[0]").sizes, (std::vector<int64_t>{0}));
  EXPECT_EQ(parse_input("int64[]").sizes, std::vector<int64_t>{});
}

TEST(ParseInput, ReadsNumbers) {
  EXPECT_TRUE(parse_input("float32[3]").number.isNone());
  EXPECT_EQ(parse_input("-3").number.toInt(), -3);
  EXPECT_EQ(parse_input("0.5").number.toDouble(), 0.5);
  EXPECT_EQ(parse_input("1e-3").number.toDouble(), 1e-3);
  EXPECT_TRUE(parse_input("true").number.toBool());
  EXPECT_FALSE(parse_input("false").number.toBool());
}

TEST(ParseInput, SaysWhatIsWrong) {
  std::vector<std::pair<const char*, const char*>> wrong = {
      {"float32", "there is no ["},
      {"3x", "a number like 3, 0.5 or true"},
      {"float32[16", "does not end with ]"},
      {"float[16]", "'float' is not one of"},
      {"float32[a]", "'a' is not a size"},
      {"x\ny", "input 'x\\x0ay': there is no ["},
      {"float32[-1]", "'-1' is not a size"},
      {"float32[1,,2]", "'' is not a size"},
      {"float32[16,]", "'' is not a size"},
      {"float32[99999999999999999999]", "too large"},
      {"float32[4294967296,4294967296]", "more elements"},
      {"float32[99999999,99999999]", "this machine's memory"},
  };
  // Half of the memory is there, but not for all that a model is verified with.
  const std::string half = "int8[" + std::to_string(sysconf(_SC_PHYS_PAGES) / 2 * sysconf(_SC_PAGESIZE)) + "]";
  wrong.emplace_back(half.c_str(), "of which there are 4 and more");
  for (const auto& [text, why] : wrong) {
    try {
      parse_input(text);
      FAIL() << text << " was read";
    } catch (const std::invalid_argument& error) {
      EXPECT_SAYS(std::string(error.what()), why);
    }
  }
}

TEST(Sample, IsTheSameForOneSeedAndIndexesForIntegers) {
  const auto draw = [](const char* text) {
    auto generator = at::detail::createCPUGenerator(7);
    return sample(parse_input(text), generator);
  };
  EXPECT_TRUE(at::equal(draw("float32[5,3]"), draw("float32[5,3]")));
  EXPECT_TRUE(at::equal(draw("float32[5,3]").to(at::kHalf), draw("float16[5,3]")));
  EXPECT_GE(draw("int64[100]").min().item<int64_t>(), 0);
  EXPECT_LE(draw("int64[100]").max().item<int64_t>(), 9);
}

TEST(Fitted, GivesAValueItsArgumentsType) {
  const auto tensor = c10::TensorType::get();
  const auto dict_type = c10::DictType::create(c10::StringType::get(), tensor);
  c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
  dict.insert("k", at::ones({2}));
  const c10::IValue fitted_dict = fitted(dict, dict_type);
  EXPECT_TRUE(fitted_dict.type()->isSubtypeOf(*dict_type));
  EXPECT_TRUE(at::equal(fitted_dict.toGenericDict().at("k").toTensor(), at::ones({2})));

  const auto list_type = c10::ListType::create(c10::FloatType::get());
  c10::impl::GenericList list(c10::AnyType::get());
  list.push_back(1);
  list.push_back(0.5);
  EXPECT_EQ(fitted(list, list_type).toDoubleVector(), (std::vector<double>{1, 0.5}));
  EXPECT_EQ(fitted(2, c10::OptionalType::create(c10::FloatType::get())).toDouble(), 2);
  EXPECT_TRUE(fitted({}, c10::OptionalType::create(c10::FloatType::get())).isNone());

  const auto tuple_type = c10::TupleType::create({dict_type, c10::IntType::get()});
  EXPECT_TRUE(fitted(c10::ivalue::Tuple::create(dict, 3), tuple_type).type()->isSubtypeOf(*tuple_type));

  const auto named = c10::TupleType::createNamed(c10::QualifiedName("Pair"), std::vector<std::string>{"left", "right"},
                                                 std::vector<c10::TypePtr>{tensor, c10::FloatType::get()});
  const c10::IValue pair = fitted(c10::ivalue::Tuple::create(at::ones({2}), 3), named);
  EXPECT_TRUE(pair.type()->isSubtypeOf(*named)) << pair.type()->repr_str();
  EXPECT_EQ(pair.toTupleRef().elements()[1].toDouble(), 3);
}

TEST(Fitted, LeavesWhatDoesNotFit) {
  c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
  dict.insert(3, at::ones({2}));
  const auto wanted = c10::DictType::create(c10::StringType::get(), c10::TensorType::get());
  EXPECT_TRUE(fitted(dict, wanted).is(dict));
  EXPECT_TRUE(fitted(at::ones({}), c10::IntType::get()).isTensor());
  EXPECT_EQ(fitted(0.5, c10::IntType::get()).toDouble(), 0.5);
  const auto pair = c10::ivalue::Tuple::create(1, 2);
  EXPECT_TRUE(fitted(pair, c10::TupleType::create({c10::FloatType::get()})).is(pair));
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing";
}

TEST(ReadInputs, TakesATensorATupleOrAList) {
  const std::string path = testing::TempDir() + "inputs.pt";
  const auto read = [&](const c10::IValue& value) {
    const auto bytes = torch::jit::pickle_save(value);
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return read_inputs(path);
  };
  const auto a = at::randn({2, 3});
  EXPECT_TRUE(at::equal(read(a).at(0).toTensor(), a));
  EXPECT_EQ(read(c10::ivalue::Tuple::create(a, 2)).size(), 2U);
  EXPECT_EQ(read(c10::List<at::Tensor>({a, a, a})).size(), 3U);
  EXPECT_THROW(read(3), std::invalid_argument);
  {  // a record shorter than its pickle says: torch would show what lies behind it in memory
    const auto bytes = torch::jit::pickle_save(a);
    put(path, with_record(Data(bytes.begin(), bytes.end()), "data/0",
                          [](const std::string& values) { return values.substr(0, 8); }));
    EXPECT_SAYS(message_of([&] { read_inputs(path); }), "has 6 elements, but its record has 8 bytes");
  }
  std::ofstream(path) << "no archive";
  EXPECT_THROW(read_inputs(path), std::invalid_argument);
  std::remove(path.c_str());
  EXPECT_THROW(read_inputs(path), std::invalid_argument);
}

}  // namespace
}  // namespace tailor::tool
