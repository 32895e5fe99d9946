// Damage as disks, networks and editors do it: nothing here knows what a checksum is.
#include <algorithm>

#include "files_mutant.h"
#include "tools/zip_directory.h"

namespace tailor::fuzz {
namespace {

struct Field {
  std::size_t at, size;
};

std::uint64_t number_at(const Data& data, Field field) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < field.size && field.at + i < data.size(); ++i)
    value |= std::uint64_t{data[field.at + i]} << (8 * i);
  return value;
}

// The numbers of all headers, of the directory and of the end.
std::vector<Field> fields_of(const Original& original) {
  const Data& data = original.data;
  std::vector<Field> fields;
  for (const tool::Record& record : original.archive.records)
    for (const Field field : {Field{0, 4}, {4, 2}, {6, 2}, {8, 2}, {14, 4}, {18, 4}, {22, 4}, {26, 2}, {28, 2}})
      fields.push_back({record.header + field.at, field.size});
  const tool::Directory directory = tool::read_directory(tool::MemoryBytes(data));
  std::size_t at = directory.begin;
  for (std::size_t i = 0; i < directory.entries.size(); ++i) {
    for (const Field field : {Field{0, 4},
                              {8, 2},
                              {10, 2},
                              {16, 4},
                              {20, 4},
                              {24, 4},
                              {28, 2},
                              {30, 2},
                              {32, 2},
                              {34, 2},
                              {36, 2},
                              {38, 4},
                              {42, 4}})
      fields.push_back({at + field.at, field.size});
    at += 46 + number_at(data, {at + 28, 2}) + number_at(data, {at + 30, 2}) + number_at(data, {at + 32, 2});
  }
  for (; at + 8 <= data.size(); at += 2)
    for (const std::size_t size : {2, 4, 8}) fields.push_back({at, size});
  return fields;
}

// A place in the file; as often in what describes the records as in what they hold.
std::size_t place(const Original& original, const Data& data, Random& random) {
  if (random.one_in(2)) return random.below(data.size());
  const auto fields = fields_of(original);
  const Field field = fields[random.below(fields.size())];
  return std::min(field.at + random.below(field.size), data.size() - 1);
}

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string at_byte(std::size_t at) { return " at byte " + std::to_string(at); }

std::string flip(const Original& original, Data& data, Random& random) {
  const std::size_t at = place(original, data, random), bit = random.below(8);
  data[at] ^= static_cast<unsigned char>(1U << bit);
  return "bit " + std::to_string(bit) + at_byte(at);
}

std::string overwrite(const Original& original, Data& data, Random& random) {
  const std::size_t at = place(original, data, random);
  data[at] = static_cast<unsigned char>(random.one_in(3) ? 0xff : random.next());
  return hex(data[at]) + at_byte(at);
}

std::string set_field(const Original& original, Data& data, Random& random) {
  const auto fields = fields_of(original);
  const Field field = fields[random.below(fields.size())];
  const std::uint64_t value = odd_number(random, number_at(data, field));
  for (std::size_t i = 0; i < field.size && field.at + i < data.size(); ++i)
    data[field.at + i] = static_cast<unsigned char>(value >> (8 * i));
  return std::to_string(field.size) + " bytes " + hex(value) + at_byte(field.at);
}

std::string cut(Data& data, Random& random) {
  const std::size_t size =
      random.one_in(2) ? 1 + random.below(std::min<std::size_t>(data.size(), 64)) : random.below(data.size());
  const std::size_t from = random.one_in(2) ? data.size() - size : random.below(data.size() - size + 1);
  data.erase(data.begin() + static_cast<long>(from), data.begin() + static_cast<long>(from + size));
  return std::to_string(size) + " bytes gone" + at_byte(from);
}

std::string grow(Data& data, Random& random) {
  Data more(1 + random.below(random.one_in(4) ? 100'000 : 100));
  const std::size_t from = random.below(data.size());
  const bool copy = random.one_in(2);  // of what is there already, so that every signature comes twice
  for (std::size_t i = 0; i < more.size(); ++i)
    more[i] = copy ? data[(from + i) % data.size()] : static_cast<unsigned char>(random.next());
  const std::size_t at = random.one_in(3) ? data.size() : random.below(data.size());
  data.insert(data.begin() + static_cast<long>(at), more.begin(), more.end());
  return std::to_string(more.size()) + " bytes more" + at_byte(at);
}

// Two records of one size change places, or two pieces of the file.
std::string exchange(const Original& original, Data& data, Random& random) {
  const auto& records = original.archive.records;
  std::size_t a = 0, b = 0, size = 0;
  for (int attempt = 0; attempt < 40 && size == 0; ++attempt) {
    const tool::Record &one = records[random.below(records.size())], &two = records[random.below(records.size())];
    if (one.offset == two.offset || one.stored != two.stored) continue;
    a = one.offset, b = two.offset, size = one.stored;
  }
  if (size == 0 || random.one_in(3)) {
    size = 1 + random.below(std::min<std::size_t>(data.size() / 2, 300));
    a = random.below(data.size() - 2 * size + 1);
    b = a + size + random.below(data.size() - 2 * size - a + 1);
  }
  for (std::size_t i = 0; i < size && std::max(a, b) + i < data.size(); ++i) std::swap(data[a + i], data[b + i]);
  return std::to_string(size) + " bytes exchanged," + at_byte(a) + " and" + at_byte(b);
}

std::string splice(const Data& other, Data& data, Random& random) {
  const std::size_t cut_here = random.below(data.size()), from = random.below(other.size());
  data.resize(cut_here);
  data.insert(data.end(), other.begin() + static_cast<long>(from), other.end());
  return "from byte " + std::to_string(cut_here) + " on another file from its byte " + std::to_string(from) + " on";
}

}  // namespace

void change_bytes(const std::vector<Original>& all, Mutant& mutant, Random& random, Steps& steps) {
  const Original& from = *mutant.from;
  Data& data = mutant.data = from.data;
  const Original& other = all[random.below(all.size())];
  const auto several = [&] { return 1 + random.below(4); };
  const auto run = [&](const char* kind, std::size_t count, const auto& change) {
    mutant.kind = kind;
    steps.run(count, [&](Random& own) { return data.size() < 200 ? "too little is left" : change(own); });
  };
  switch (random.below(8)) {
    case 0:
    case 1:
      return run("flipped bits", several(), [&](Random& own) { return flip(from, data, own); });
    case 2:
      return run("other bytes", several(), [&](Random& own) { return overwrite(from, data, own); });
    case 3:
      return run("other numbers in headers", several(), [&](Random& own) { return set_field(from, data, own); });
    case 4:
      return run("bytes cut out or off", 1, [&](Random& own) { return cut(data, own); });
    case 5:
      return run("bytes put in", 1, [&](Random& own) { return grow(data, own); });
    case 6:
      return run("pieces exchanged", 1, [&](Random& own) { return exchange(from, data, own); });
    default:
      return run("two files in one", 1, [&](Random& own) { return splice(other.data, data, own); });
  }
}

}  // namespace tailor::fuzz
