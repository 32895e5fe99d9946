// Archives that say one thing here and another there, or what no archive should say.
#include <algorithm>

#include "files_mutant.h"

namespace tailor::fuzz {
namespace {

using tool::ZipEnd;
using tool::ZipRecord;
using Records = std::vector<ZipRecord>;

// A deflate stream of a few bytes and then `size` letters, about a thousandth of that long: one letter, then repeats of it.
// None of the bytes is above 143, where codes are longer.
Data repeated_letter(std::size_t size, unsigned char letter = 'a', const std::string& before = "",
                     const std::string& behind = "") {
  Data stream;
  unsigned held = 0, bits = 0;
  const auto put = [&](unsigned value, unsigned count) {
    bits |= value << held;
    for (held += count; held >= 8; held -= 8, bits >>= 8) stream.push_back(static_cast<unsigned char>(bits));
  };
  const auto code = [&](unsigned value, unsigned count) {  // codes stand with their first bit first
    while (count-- > 0) put(value >> count & 1, 1);
  };
  put(1, 1), put(1, 2);  // the last block, with the fixed codes
  const auto text = [&](const std::string& bytes) {
    for (const char byte : bytes) code(0x30 + static_cast<unsigned char>(byte), 8);
  };
  text(before);
  if (size > 0) code(0x30U + letter, 8);
  std::size_t left = size - std::min<std::size_t>(size, 1);
  for (; left >= 258; left -= 258) code(0xc0 + 285 - 280, 8), code(0, 5);  // 258 letters, from one letter back
  for (; left > 0; --left) code(0x30U + letter, 8);
  text(behind);
  code(0, 7);
  put(0, 7);  // up to a whole byte
  return stream;
}

// `real` bytes that say that they are `said`.
ZipRecord bomb(std::size_t real, std::uint32_t said) {
  ZipRecord record = tool::zip_record("m/extra/bomb", "");
  record.data = repeated_letter(real);
  record.method = 8;
  record.stored = static_cast<std::uint32_t>(record.data.size());
  record.size = record.local_size = said;
  return record;
}

std::string add_bomb(Records& records, Random& random) {
  const std::size_t real = std::size_t{1} << (10 + random.below(12));
  const std::size_t said[] = {real + 1, real - 1, 0, 10 * real, 0xfffffffe, std::size_t{700} << 20};
  const std::size_t lie = said[random.below(6)];
  const bool honest = random.one_in(6);  // one that is as large as it says, beyond what is allowed
  records.push_back(honest ? bomb(std::size_t{300} << 20, 300 << 20) : bomb(real, static_cast<std::uint32_t>(lie)));
  return honest ? "a record that becomes 300 MiB"
                : "a record that becomes " + std::to_string(real) + " bytes and says " + std::to_string(lie);
}

// A pickle that is right in every checksum and becomes much larger: a value after another, of which none is taken.
std::string swollen_pickle(Records& records, Mutant& mutant, Random& random) {
  std::vector<ZipRecord*> pickles;
  for (ZipRecord& record : records)
    if (record.name.ends_with("pkl")) pickles.push_back(&record);
  ZipRecord& record = *random.of(pickles);
  const bool small = !random.one_in(4);  // the others are beyond what is allowed, and must not be held
  const std::size_t size = small ? std::size_t{1} << (12 + random.below(10)) : std::size_t{40} << 20;
  const std::string begin = "\x80\x02", end = ".";
  ZipRecord swollen = tool::zip_record(record.name, begin + std::string(size, 'N') + end);
  swollen.data = repeated_letter(size, 'N', begin, end);
  swollen.method = 8;
  swollen.stored = static_cast<std::uint32_t>(swollen.data.size());
  record = swollen;
  if (small) mutant.held = std::max<std::uint64_t>(mutant.held, size);
  return record.name + " has " + std::to_string(size) + " values in " + std::to_string(record.stored) + " bytes";
}

std::string bad_name(Records& records, Random& random) {
  const char* const names[] = {"m/../escaped",
                               "../escaped",
                               "/etc/escaped",
                               "m//escaped",
                               "m/./data.pkl",
                               "m\\escaped",
                               "m/..",
                               "n/data.pkl",
                               "m/data.pkl/",
                               "",
                               "m",
                               "m/extra/../../../escaped",
                               "m/ex\ntra",
                               "m/\x7f"};
  const std::string name = names[random.below(std::size(names))];
  if (random.one_in(2)) {
    ZipRecord more = tool::zip_record(name, "text");
    records.insert(records.begin() + static_cast<long>(random.below(records.size())), more);
    return "a record more, named '" + name + "'";
  }
  ZipRecord& record = random.of(records);
  const std::string old = record.name;
  record.name = record.local_name = name;
  return old + " is named '" + name + "'";
}

std::string same_name(Records& records, Random& random) {
  ZipRecord again = tool::zip_record(random.of(records).name, "other text");
  if (random.one_in(2)) {
    for (char& c : again.name) c = c >= 'a' && c <= 'z' && c != 'm' ? static_cast<char>(c - 'a' + 'A') : c;
    again.local_name = again.name;
  }
  records.insert(records.begin() + static_cast<long>(random.below(records.size() + 1)), again);
  return "a second " + again.name;
}

// Changed where the records are placed already, so that the headers contradict what is there.
std::string contradict(Records& records, Random& random) {
  ZipRecord& record = random.of(records);
  const auto lie = static_cast<std::uint32_t>(odd_number(random, record.size));
  switch (random.below(10)) {
    case 0:
      record.checksum ^= 1U << random.below(32);
      return record.name + " has another checksum";
    case 1:
      record.local_size = lie;
      return "the header of " + record.name + " says " + std::to_string(lie) + " bytes";
    case 2:
      record.size = lie;
      return "the directory says that " + record.name + " has " + std::to_string(lie) + " bytes";
    case 3:
      record.size = record.stored = record.local_size = lie;
      return record.name + " says everywhere that it has " + std::to_string(lie) + " bytes";
    case 4:
      record.header =
          random.one_in(2) ? random.of(records).header : static_cast<std::uint32_t>(odd_number(random, record.header));
      return record.name + " begins at byte " + std::to_string(record.header);
    case 5:
      record.flags ^= static_cast<std::uint16_t>(1U << random.below(16));
      if (random.one_in(2)) record.local_flags = record.flags;
      return record.name + " has flags " + std::to_string(record.flags);
    case 6:
      record.method = static_cast<std::uint16_t>(random.one_in(2) ? 8 : random.below(100));
      return record.name + " is compressed in the way " + std::to_string(record.method);
    case 7:
      record.attributes = random.one_in(2) ? 1U << random.below(32) : 0x41ed0010;
      return record.name + " has attributes " + std::to_string(record.attributes);
    case 8:
      record.local_name = random.of(records).name;
      return "the header of " + record.name + " is named " + record.local_name;
    default: {
      const ZipRecord other = random.of(records);
      record.header = other.header, record.size = record.stored = record.local_size = other.size;
      record.checksum = other.checksum;
      return record.name + " leads to " + other.name;
    }
  }
}

void append(Data& data, std::uint64_t value, int size) {
  for (int i = 0; i < size; ++i) data.push_back(static_cast<unsigned char>(value >> (8 * i)));
}

// Sizes in the field of zip64: the true ones, or not.
std::string large_sizes(Records& records, Random& random) {
  ZipRecord& record = random.of(records);
  const bool lie = !random.one_in(3);
  const auto value = [&](std::uint64_t truth) { return lie && random.one_in(2) ? odd_number(random, truth) : truth; };
  Data field;
  const std::size_t which = 1 + random.below(7);
  if (which & 1) append(field, value(record.size), 8), record.size = 0xffffffff;
  if (which & 2) append(field, value(record.stored), 8), record.stored = record.local_size;
  if (which & 4) append(field, value(record.header), 8), record.header = 0xffffffff;
  if (which & 2 && random.one_in(2)) record.stored = 0xffffffff;
  append(record.extra, lie && random.one_in(5) ? odd_number(random, 1) : 1, 2);
  append(record.extra, lie && random.one_in(5) ? odd_number(random, field.size()) : field.size(), 2);
  record.extra.insert(record.extra.end(), field.begin(), field.end());
  if (random.one_in(8)) {
    const Data again = record.extra;
    record.extra.insert(record.extra.end(), again.begin(), again.end());
  }
  return record.name + " has a field for large sizes" + (lie ? ", which lies" : "");
}

std::string wrong_end(ZipEnd& end, Random& random) {
  switch (random.below(5)) {
    case 0:
      end.entries = static_cast<std::uint16_t>(odd_number(random, end.entries));
      return "the end counts " + std::to_string(end.entries) + " records";
    case 1:
      end.size = static_cast<std::uint32_t>(odd_number(random, end.size));
      return "the end says that the directory has " + std::to_string(end.size) + " bytes";
    case 2:
      end.begin = static_cast<std::uint32_t>(odd_number(random, end.begin));
      return "the end says that the directory begins at byte " + std::to_string(end.begin);
    case 3:
      end.disk = static_cast<std::uint16_t>(odd_number(random, 0));
      return "the end is on disk " + std::to_string(end.disk);
    default:
      end.comment = std::string(1 + random.below(random.one_in(4) ? 65535 : 40), 'c');
      return "a comment of " + std::to_string(end.comment.size()) + " bytes";
  }
}

}  // namespace

void tell_lies(const std::vector<Original>&, Mutant& mutant, Random& random, Steps& steps) {
  Records records;
  for (const auto& [name, text] : mutant.from->contents) records.push_back(tool::zip_record("m/" + name, text));
  const auto before = [&](const char* kind, std::string (*change)(Records&, Random&)) {
    mutant.kind = kind;
    steps.run(1, [&](Random& own) { return change(records, own); });
    mutant.data = tool::zip(records);
  };
  const auto placed = [&](const char* kind, std::string (*change)(Records&, Random&)) {
    mutant.kind = kind;
    const std::size_t count = 1 + random.below(2);
    mutant.data =
        tool::zip(records, [&](Records& there) { steps.run(count, [&](Random& own) { return change(there, own); }); });
  };
  switch (random.below(7)) {
    case 6:
      mutant.kind = "pickles that swell";
      mutant.covered = false;
      steps.run(1, [&](Random& own) { return swollen_pickle(records, mutant, own); });
      mutant.data = tool::zip(records);
      return;
    case 0:
      return before("names that climb or lie elsewhere", bad_name);
    case 1:
      return before("two records of one name", same_name);
    case 2:
      return before("bombs", add_bomb);
    case 3:
      return placed("headers against the directory", contradict);
    case 4:
      return placed("sizes of zip64", large_sizes);
    default:
      mutant.kind = "ends";
      mutant.data =
          tool::zip(records, {}, [&](ZipEnd& end) { steps.run(1, [&](Random& own) { return wrong_end(end, own); }); });
  }
}

}  // namespace tailor::fuzz
