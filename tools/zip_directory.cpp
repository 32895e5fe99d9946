#include "zip_directory.h"

namespace tailor::tool {
namespace {

constexpr std::uint32_t entry_signature = 0x02014b50, end_signature = 0x06054b50;
constexpr std::uint32_t end64_signature = 0x06064b50, locator_signature = 0x07064b50;
constexpr std::uint64_t end_size = 22, end64_size = 56, locator_size = 20, entry_size = 46;

// A million records: a directory beyond this is a trick, and it is the one thing that is read into memory whole.
constexpr std::uint64_t largest_directory = 64 << 20;

std::vector<unsigned char> piece(const Bytes& bytes, std::uint64_t offset, std::uint64_t size) {
  std::vector<unsigned char> data(size);
  bytes.read(offset, data);
  return data;
}

struct End {
  std::uint64_t entries = 0, size = 0, begin = 0;
  std::uint64_t place = 0;  // where the record of the end begins: the directory must reach up to it
};

// A number that is written twice, the first time in a field that may be too small for it.
void require_same(std::uint64_t small, std::uint64_t all_ones, std::uint64_t large) {
  if (small != large && small != all_ones) throw Damage("its two ends disagree");
}

End read_end64(const Bytes& bytes, std::uint64_t locator_place, const End& small) {
  const auto locator_data = piece(bytes, locator_place, locator_size);
  Fields locator(locator_data);
  locator.four();
  const std::uint32_t disk = locator.four();
  const std::uint64_t place = locator.eight();
  const std::uint32_t disks = locator.four();
  if (disk != 0 || disks > 1) throw Damage("it is one part of several");
  if (locator_place < end64_size || place != locator_place - end64_size)
    throw Damage("its end points to a wrong place");

  const auto data = piece(bytes, place, end64_size);
  Fields fields(data);
  if (fields.four() != end64_signature) throw Damage("its end is damaged");
  if (fields.eight() != end64_size - 12) throw Damage("its end has a wrong size");
  fields.four();  // versions: they promise nothing that is not checked here
  if (fields.four() != 0 || fields.four() != 0) throw Damage("it is one part of several");
  End end;
  const std::uint64_t here = fields.eight();
  end.entries = fields.eight();
  end.size = fields.eight();
  end.begin = fields.eight();
  end.place = place;
  if (here != end.entries) throw Damage("it is one part of several");
  require_same(small.entries, 0xffff, end.entries);
  require_same(small.size, in_extra_field, end.size);
  require_same(small.begin, in_extra_field, end.begin);
  return end;
}

// torch writes no comment, so the end of the archive is the end of the file. Looking further up for a place that could
// be an end, as zip tools do, would leave two opinions about which one it is.
End read_end(const Bytes& bytes) {
  if (bytes.size() < end_size) throw Damage("it is too short");
  End end;
  end.place = bytes.size() - end_size;
  const auto data = piece(bytes, end.place, end_size);
  Fields fields(data);
  if (fields.four() != end_signature) throw Damage("its end is missing: it was cut off, or something was appended");
  const std::uint16_t disk = fields.two(), directory_disk = fields.two(), here = fields.two();
  if (disk != 0 || directory_disk != 0) throw Damage("it is one part of several");
  end.entries = fields.two();
  end.size = fields.four();
  end.begin = fields.four();
  if (here != end.entries) throw Damage("it is one part of several");
  if (fields.two() != 0) throw Damage("its end is damaged");

  if (end.place >= locator_size) {
    const auto signature = piece(bytes, end.place - locator_size, 4);
    if (Fields(signature).four() == locator_signature) return read_end64(bytes, end.place - locator_size, end);
  }
  return end;
}

Entry read_entry(Fields& directory) {
  if (directory.left() < entry_size) throw Damage("its directory ends early");
  if (directory.four() != entry_signature) throw Damage("its directory is damaged");
  Entry entry;
  directory.four();  // versions
  entry.flags = directory.two();
  entry.method = directory.two();
  directory.four();  // date
  entry.checksum = directory.four();
  entry.stored = directory.four();
  entry.size = directory.four();
  const std::size_t name = directory.two(), extra = directory.two(), comment = directory.two();
  const std::uint16_t disk = directory.two();
  directory.two();  // whether it is text
  constexpr std::uint32_t folder = 0x10;
  entry.folder = (directory.four() & folder) != 0;
  entry.header = directory.four();
  const auto text = directory.take(name);
  entry.name.assign(text.begin(), text.end());
  Fields large = zip64_field(directory.take(extra));
  directory.take(comment);
  if (disk != 0) throw Damage("it is one part of several");
  if (entry.size == in_extra_field) entry.size = large.eight();
  if (entry.stored == in_extra_field) entry.stored = large.eight();
  if (entry.header == in_extra_field) entry.header = large.eight();
  return entry;
}

}  // namespace

std::span<const unsigned char> Fields::take(std::size_t size) {
  if (size > data_.size()) throw Damage("its directory ends early");
  const auto taken = data_.first(size);
  data_ = data_.subspan(size);
  return taken;
}

std::uint64_t Fields::number(std::size_t size) {
  std::uint64_t value = 0;
  const auto data = take(size);
  for (std::size_t i = 0; i < size; ++i) value |= std::uint64_t{data[i]} << (8 * i);
  return value;
}

Fields zip64_field(std::span<const unsigned char> extra) {
  constexpr std::uint16_t zip64 = 1;
  Fields fields(extra), found({});
  while (fields.left() > 0) {
    const std::uint16_t kind = fields.two();
    const auto data = fields.take(fields.two());
    if (kind != zip64) continue;
    if (found.left() > 0) throw Damage("its directory gives a size twice");
    found = Fields(data);
  }
  return found;
}

Directory read_directory(const Bytes& bytes) {
  const End end = read_end(bytes);
  if (end.size > largest_directory) throw Damage("its directory is larger than any that torch writes");
  if (end.begin > end.place || end.size != end.place - end.begin)
    throw Damage("its directory is not where its end says");
  if (end.entries > end.size / entry_size) throw Damage("its directory is too small for its records");
  const auto data = piece(bytes, end.begin, end.size);
  Fields fields(data);
  Directory directory;
  directory.begin = end.begin;
  directory.entries.reserve(end.entries);
  for (std::uint64_t i = 0; i < end.entries; ++i) directory.entries.push_back(read_entry(fields));
  if (fields.left() > 0) throw Damage("its directory has more records than its end says");
  return directory;
}

}  // namespace tailor::tool
