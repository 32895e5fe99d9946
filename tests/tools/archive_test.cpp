#include "tools/archive.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <chrono>
#include <random>

#include "files.h"
#include "tools/crc32.h"
#include "tools/inflate.h"

namespace tailor::tool {
namespace {

Archive check(const Data& data) { return check_archive(MemoryBytes(data), "model.pt"); }

std::string damage(const Data& data) {
  const std::string message = failure_of(Exit::unreadable, [&] { check(data); });
  EXPECT_TRUE(message.starts_with("model.pt: ")) << message;
  return message;
}

std::vector<ZipRecord> two() { return {zip_record("m/version", "3\n"), zip_record("m/data.pkl", "pickle")}; }

// What a record may be wrong about, in the directory of a good archive.
Data with(const std::function<void(ZipRecord&)>& change) {
  return zip(two(), [&](std::vector<ZipRecord>& records) { change(records[1]); });
}

TEST(Printable, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("gemm.weight \u00e9 \u4e2d \U0001f9f5"), "gemm.weight \u00e9 \u4e2d \U0001f9f5");
  EXPECT_EQ(printable("a\nb\x1b[2J\x7f"), "a\\x0ab\\x1b[2J\\x7f");
  EXPECT_EQ(printable("\xaf\xc3("), "\\xaf\\xc3(");  // no UTF-8
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");    // a control character in UTF-8
  // NOLINTNEXTLINE(misc-misleading-bidirectional): that it misleads nobody is what is tested
  EXPECT_EQ(printable("\xe2\x80\xae"), "\\xe2\\x80\\xae");  // text from right to left
  EXPECT_EQ(printable("\xc0\xaf\xed\xa0\x80\xe2\x80"), "\\xc0\\xaf\\xed\\xa0\\x80\\xe2\\x80");
  EXPECT_EQ(printable(std::string(1000, 'x')), std::string(400, 'x') + "...");
}

TEST(OneLine, TakesWhatMatters) {
  const auto line = [](const std::string& text) { return one_line(std::runtime_error(text)); };
  EXPECT_EQ(line("\nUnknown builtin op: foo::bar.\nHere are some suggestions:\n"), "Unknown builtin op: foo::bar.");
  EXPECT_EQ(line("The following operation failed.\nTraceback of TorchScript (most recent call last):\n  File "
                 "x\nRuntimeError: no\n"),
            "RuntimeError: no");
  EXPECT_EQ(line("[enforce fail at alloc_cpu.cpp:1] . not enough"), "not enough");
  EXPECT_EQ(line("Unknown type name '__torch__.Two':\n  File \"x\"\n"), "Unknown type name '__torch__.Two'");
  EXPECT_EQ(line("expected ] but found 'ident' here:\n  File \"x\"\n"), "expected ] but found 'ident'");
  EXPECT_EQ(line(" \n "), "unknown error");
}

TEST(Crc32, KnownValues) {
  EXPECT_EQ(crc32(0, "", 0), 0u);
  EXPECT_EQ(crc32(0, "123456789", 9), 0xcbf43926u);
  std::string text(1000, 'x');
  for (std::size_t cut = 0; cut < 40; ++cut) {  // in pieces, at every alignment
    EXPECT_EQ(crc32(crc32(0, text.data(), cut), text.data() + cut, text.size() - cut),
              crc32(0, text.data(), text.size()));
  }
}

std::string inflated(const Data& data, std::uint64_t limit) {
  std::string result;
  std::size_t at = 0;
  const auto next = [&](unsigned char* into, std::size_t size) {  // a byte at a time: no state may depend on the pieces
    if (size == 0 || at == data.size()) return std::size_t{0};
    *into = data[at++];
    return std::size_t{1};
  };
  inflate(
      next, [&](const unsigned char* bytes, std::size_t size) { result.append(bytes, bytes + size); }, limit);
  return result;
}

TEST(Inflate, KindsOfBlocks) {
  EXPECT_EQ(inflated({0x03, 0x00}, 0), "");                                      // empty, fixed codes
  EXPECT_EQ(inflated({0x01, 0x03, 0x00, 0xfc, 0xff, 'a', 'b', 'c'}, 3), "abc");  // stored
  EXPECT_EQ(inflated({0x4b, 0x4c, 0x84, 0x01, 0x00}, 10), "aaaaaaaaaa");         // a repeat, fixed codes
  const Data own{0x15, 0xc9, 0x41, 0x11, 0x00, 0x30, 0x10, 0xc2, 0x40, 0x2b, 0x58, 0x0b, 0xa9,
                 0x7f, 0x0d, 0x3d, 0x5e, 0x19, 0x58, 0x1e, 0x45, 0x4d, 0x41, 0xda, 0x87, 0x65,
                 0x1f, 0xe4, 0x76, 0xa6, 0xf3, 0x6b, 0x46, 0x35, 0x27, 0x6b, 0xfd};
  EXPECT_EQ(inflated(own, 60), "adabaccc baacabbdacbadabaaa cab abacacccaba acbabc aa babcbc");
}

TEST(Inflate, RefusesWhatIsDamaged) {
  EXPECT_THROW(inflated({}, 10), InflateError);                                            // nothing
  EXPECT_THROW(inflated({0x07}, 10), InflateError);                                        // a fourth kind of block
  EXPECT_THROW(inflated({0x01, 0x03, 0x00, 0xfc, 0xfe, 'a', 'b', 'c'}, 3), InflateError);  // length and complement
  EXPECT_THROW(inflated({0x01, 0x03, 0x00, 0xfc, 0xff, 'a'}, 3), InflateError);            // ends early
  EXPECT_THROW(inflated({0x4b, 0x4c, 0x84, 0x01, 0x00}, 9), InflateError);                 // larger than allowed
  EXPECT_THROW(inflated({0x03, 0x02, 0x00}, 300), InflateError);                           // a repeat of nothing
  EXPECT_THROW(inflated({0x05, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 300), InflateError);  // more symbols than there are
}

TEST(Archive, ReadsWhatTorchWrites) {
  const Archive archive =
      check_module_archive(MemoryBytes(saved(example_module(), {{"note.txt", "hello"}})), "model.pt");
  ASSERT_NE(archive.find("data.pkl"), nullptr);
  ASSERT_NE(archive.find("extra/note.txt"), nullptr);
  EXPECT_EQ(archive.find("extra/note.txt")->size, 5u);
  EXPECT_EQ(archive.below("extra/"), std::vector<std::string>{"note.txt"});
  EXPECT_TRUE(archive.find("code/__torch__.py")->deflated);
  EXPECT_EQ(archive.find("data/0")->offset % 64, 0u);
}

TEST(Archive, ReadsWhatZipToolsWrite) {
  const Archive archive = check(zip(
      {zip_record("m/", ""), zip_record("m/version", "3\n"), zip_record("m/code/", ""), zip_record("m/empty", "")}));
  EXPECT_EQ(archive.folder, "m");
  EXPECT_EQ(archive.records.size(), 2u);  // not the folders
  EXPECT_EQ(archive.size(), 2u);
}

TEST(Archive, SaysWhatAFileIsThatIsNone) {
  EXPECT_SAYS(damage({}), "empty");
  EXPECT_SAYS(damage({0x80, 2, 'x', 'y'}), "pickle");
  EXPECT_SAYS(damage(data_of("import torch\n")), "not a torch file");
  EXPECT_SAYS(damage(data_of("PK")), "too short");
  const auto kind = [](const std::string& name) {
    const Data data = zip({zip_record("m/data.pkl", ""), zip_record("m/" + name, "")});
    return failure_of(Exit::unreadable, [&] { check_module_archive(MemoryBytes(data), "model.pt"); });
  };
  EXPECT_SAYS(kind("version"), "torch.save wrote it");
  EXPECT_SAYS(kind("archive_format"), "torch.export");
  EXPECT_SAYS(kind(".data/extern_modules"), "torch.package");
  EXPECT_SAYS(kind("constants.pkl"), "no record 'version'");
}

TEST(Archive, RefusesBadNames) {
  for (const char* name : {"m/../x", "m/a/..", "m/./x", "m//x", "m/a\\b", "m/a\nb", "/m/x", "../x"}) {
    EXPECT_SAYS(damage(zip({zip_record("m/version", "3"), zip_record(name, "")})), "model.pt: damaged archive: it")
        << name;
  }
  EXPECT_SAYS(damage(zip({zip_record("m/a", ""), zip_record("n/a", "")})), "not all in one folder");
  EXPECT_SAYS(damage(zip({zip_record("version", "")})), "not all in one folder");
  EXPECT_SAYS(damage(zip({zip_record("m/a", ""), zip_record("m/a", "")})), "two records named");
  EXPECT_SAYS(damage(zip({zip_record("m/a", ""), zip_record("m/A", "")})), "two records named");
  EXPECT_SAYS(damage(zip({zip_record("m/../a\x1b[2J", "")})), "\\x1b");  // a terminal must not obey it
}

// Which torch takes from the names of files and from the keys of extra files, and reads again.
TEST(Archive, TakesTheNamesThatTorchWrites) {
  for (const char* folder : {"m", ".", "..", "...", "a\tb", "a\nb"}) {
    const std::string top = folder;
    const Archive archive = check(zip({zip_record(top + "/version", "3"), zip_record(top + "/extra/a\\b", ""),
                                       zip_record(top + "/extra//abs", ""), zip_record(top + "/extra/a//b", ""),
                                       zip_record(top + "/extra/./a", ""), zip_record(top + "/extra/a\nb", "")}));
    EXPECT_EQ(archive.folder, top);
    EXPECT_EQ(archive.below("extra/"), (std::vector<std::string>{"a\\b", "/abs", "a//b", "./a", "a\nb"}));
  }
  EXPECT_SAYS(damage(zip({zip_record("m/version", "3"), zip_record("m/extra/../a", "")})),
              "which leads out of a folder it is unpacked to");
  EXPECT_SAYS(damage(zip({zip_record("m/version", "3"), zip_record(std::string("m/a\0b", 5), "")})), "before the zero");
  EXPECT_SAYS(damage(zip({zip_record("/version", "3"), zip_record("/data.pkl", "")})), "not all in one folder");
}

// A pickle may ask for the same record millions of times.
TEST(Archive, FindsARecordAmongManyAtOnce) {
  std::vector<ZipRecord> records;
  for (int i = 0; i < 20'000; ++i) records.push_back(zip_record("m/" + std::to_string(i), ""));
  const Archive archive = check(zip(records));
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 1'000'000; ++i) ASSERT_NE(archive.find("19999"), nullptr);
  EXPECT_EQ(archive.find("20000"), nullptr);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));  // one after another: a minute
}

TEST(Archive, RefusesContradictions) {
  EXPECT_SAYS(damage(with([](ZipRecord& r) { r.local_name = "m/data.pkX"; })), "another name");
  EXPECT_SAYS(damage(with([](ZipRecord& r) { r.local_flags = 1 << 11; })), "contradicts");
  EXPECT_SAYS(damage(with([](ZipRecord& r) { r.local_size = 5; })), "contradicts");
  EXPECT_SAYS(damage(with([](ZipRecord& r) { r.checksum ^= 1; })), "'data.pkl' is damaged: its checksum is wrong");
  EXPECT_SAYS(damage(with([](ZipRecord& r) { r.size = 5; })), "sizes differ");
  EXPECT_SAYS(damage(with([](ZipRecord& r) { r.flags = r.local_flags = 1; })), "encrypted");
  EXPECT_SAYS(damage(with([](ZipRecord& r) { r.method = 12; })), "compressed in a way");
  EXPECT_SAYS(damage(with([](ZipRecord& r) { r.flags = r.local_flags = 8; })), "what follows its data");
}

// torch would say that it has read them, and hand on memory as it was.
TEST(Archive, RefusesRecordsMarkedAsFolders) {
  EXPECT_SAYS(damage(with([](ZipRecord& r) { r.attributes = 0x10; })),
              "'m/data.pkl' is damaged: it is marked as a folder");
  EXPECT_EQ(check(with([](ZipRecord& r) { r.attributes = 0x81a40020; })).records.size(), 2u);  // what zip tools write
  ZipRecord folder = zip_record("m/code/", "");
  folder.attributes = 0x41ed0010;
  EXPECT_EQ(check(zip({zip_record("m/version", "3\n"), folder})).records.size(), 1u);
}

TEST(Archive, RefusesRecordsOutsideOrOverOthers) {
  for (const std::uint32_t header : {5u, 100u, 0x7fffffffu, 0xfffffffeu}) {
    EXPECT_SAYS(damage(with([&](ZipRecord& r) { r.header = header; })), "record") << header;
  }
  EXPECT_SAYS(damage(with([](ZipRecord& r) { r.stored = r.size = r.local_size = 7; })), "outside the file");
  EXPECT_SAYS(damage(with([](ZipRecord& r) { r.stored = r.size = r.local_size = 0xfffffffe; })), "outside the file");
  const Data overlap = zip(two(), [](std::vector<ZipRecord>& records) {
    records[0].stored = records[0].size = records[0].local_size = 10;
    records[0].checksum = crc32(0, "3\nPK\3\4\x14\0\0\0", 10);
  });
  EXPECT_SAYS(damage(overlap), "overlaps");
}

Data little_endian(std::uint64_t value, int size) {
  Data data;
  for (int i = 0; i < size; ++i) data.push_back(static_cast<unsigned char>(value >> (8 * i)));
  return data;
}

Data zip64_extra(std::initializer_list<std::uint64_t> values) {
  Data extra{1, 0, static_cast<unsigned char>(8 * values.size()), 0};
  for (const std::uint64_t value : values) {
    const Data bytes = little_endian(value, 8);
    extra.insert(extra.end(), bytes.begin(), bytes.end());
  }
  return extra;
}

TEST(Archive, Zip64Sizes) {
  // `stored` fits in 32 bits, so the field holds the other two only.
  const auto large = [](std::uint64_t size, std::uint64_t header) {
    return with([&](ZipRecord& r) {
      r.extra = zip64_extra({size, header});
      r.header = r.size = 0xffffffff;
    });
  };
  const std::uint64_t header = two()[0].data.size() + two()[0].name.size() + 30;
  EXPECT_EQ(check(large(6, header)).records.size(), 2u);
  for (const std::uint64_t lie :
       {std::uint64_t{7}, std::uint64_t{1} << 32, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    damage(large(lie, header));
    damage(large(6, lie));
    damage(with([&](ZipRecord& r) {
      r.extra = zip64_extra({lie, lie});
      r.size = r.stored = 0xffffffff;
    }));
  }
  EXPECT_SAYS(damage(with([](ZipRecord& r) { r.size = 0xffffffff; })), "ends early");  // no such field at all
  EXPECT_SAYS(damage(with([](ZipRecord& r) { r.extra = {9, 9, 200, 0}; })), "ends early");
  EXPECT_SAYS(damage(with([](ZipRecord& r) {
                r.extra = zip64_extra({6});
                r.extra.insert(r.extra.end(), r.extra.begin(), r.extra.end());
              })),
              "twice");
}

TEST(Archive, RefusesWrongEnds) {
  const auto end = [](const std::function<void(ZipEnd&)>& change) { return damage(zip(two(), {}, change)); };
  EXPECT_SAYS(end([](ZipEnd& e) { e.entries = 1; }), "more records");
  EXPECT_SAYS(end([](ZipEnd& e) { e.entries = 3; }), "directory");
  EXPECT_SAYS(end([](ZipEnd& e) { e.entries = 0xffff; }), "too small");
  EXPECT_SAYS(end([](ZipEnd& e) { e.size -= 1; }), "not where");
  EXPECT_SAYS(end([](ZipEnd& e) { e.begin += 1; }), "not where");
  EXPECT_SAYS(end([](ZipEnd& e) { e.begin = 0xffffffff; }), "not where");
  EXPECT_SAYS(end([](ZipEnd& e) { e.disk = 1; }), "one part of several");
  EXPECT_SAYS(end([](ZipEnd& e) { e.comment = "hello"; }), "its end is missing");
  EXPECT_SAYS(damage(zip({})), "empty");
}

TEST(Archive, RefusesWhatGrowsTooLarge) {
  const auto bomb = [](const Data& stream, std::uint32_t size) {
    ZipRecord record = zip_record("m/code", "");
    record.data = stream;
    record.method = 8;
    record.stored = static_cast<std::uint32_t>(stream.size());
    record.size = record.local_size = size;
    return damage(zip({record}));
  };
  EXPECT_SAYS(bomb({0x4b, 0x4c, 0x84, 0x01, 0x00}, 1 << 30), "cannot become as large");
  EXPECT_SAYS(bomb(Data(1 << 20, 0), 900 << 20), "too large when decompressed");
  EXPECT_SAYS(bomb({0x4b, 0x4c, 0x84, 0x01, 0x00}, 9), "larger than the archive says");
  EXPECT_SAYS(bomb({0x4b, 0x4c, 0x84, 0x01, 0x00}, 11), "smaller than the archive says");
  EXPECT_SAYS(bomb({0x4b, 0x4c, 0x84, 0x01, 0x00, 0x00}, 10), "something follows");
}

TEST(Archive, RefusesEveryTruncation) {
  const Data whole = saved(example_module());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Data cut(whole.begin(), whole.begin() + static_cast<long>(size));
    EXPECT_ANY_THROW(check(cut)) << size;
  }
  Data longer = whole;
  longer.push_back(0);
  EXPECT_SAYS(damage(longer), "something was appended");
}

// What torch would read: the bytes of all records by name. For compressed ones, where the last bits may be anything,
// the checksum of what they become.
std::vector<std::pair<std::string, Data>> contents(const Data& data, const Archive& archive) {
  std::vector<std::pair<std::string, Data>> result;
  for (const Record& record : archive.records) {
    const auto begin = data.begin() + static_cast<long>(record.offset);
    const Data stored(begin, begin + static_cast<long>(record.stored));
    result.emplace_back(record.name, record.deflated ? little_endian(record.checksum, 4) : stored);
  }
  return result;
}

TEST(Archive, EveryFlippedBitIsRefusedOrChangesNothing) {
  const Data whole = saved(example_module(), {{"note.txt", "hello"}});
  const auto expected = contents(whole, check(whole));
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    Data flipped = whole;
    flipped[bit / 8] ^= static_cast<unsigned char>(1 << (bit % 8));
    try {
      const Archive archive = check(flipped);
      ASSERT_TRUE(contents(flipped, archive) == expected) << "bit " << bit;
    } catch (const Failure&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 4 * whole.size());  // what may flip is padding, dates and versions
}

TEST(Archive, RandomDamageNeverCrashes) {
  const Data whole = saved(example_module());
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    Data damaged = whole;
    for (unsigned i = 0; i <= random() % 8; ++i) {
      // Near the end, where the directory is, most of the time.
      const std::size_t from = random() % 4 == 0 ? 0 : whole.size() - std::min<std::size_t>(whole.size(), 2000);
      damaged[from + random() % (whole.size() - from)] =
          static_cast<unsigned char>(random() % 3 == 0 ? 0xff : random());
    }
    try {
      check(damaged);
    } catch (const Failure& failure) {
      ASSERT_EQ(failure.exit, Exit::unreadable);
    }
  }
}

}  // namespace
}  // namespace tailor::tool
