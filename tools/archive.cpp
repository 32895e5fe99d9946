#include "archive.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include "crc32.h"
#include "failure.h"
#include "inflate.h"
#include "zip_directory.h"

namespace tailor::tool {
namespace {

constexpr std::uint16_t sizes_follow = 1 << 3;                     // in a descriptor behind the data
constexpr std::uint16_t known_flags = sizes_follow | 6 | 1 << 11;  // 6: how hard it was compressed; 11: names in UTF-8
constexpr std::uint16_t stored_method = 0, deflated_method = 8;
constexpr std::size_t chunk = 1 << 20;

// Deflate cannot do better than this. What all compressed records may become is limited too: torch compresses source
// code only, but an archive that some zip tool packed again is welcome.
constexpr std::uint64_t best_ratio = 1032;
std::uint64_t largest_inflated(std::uint64_t file) { return (std::uint64_t{256} << 20) + 4 * file; }

// A record's damage, as part of a sentence about the file.
[[noreturn]] void refuse(const std::string& record, const std::string& what) {
  throw Damage("record '" + printable(record) + "' is damaged: " + what);
}

// ---- names

// Nothing here is ever unpacked to disk, but what opens this archive next may do so. Two parts of a name are not torch's
// own: the top folder is named after the file, and an extra file has the user's key, whatever characters these have.
void check_name(const std::string& name, const std::string& folder) {
  const auto bad = [&](const char* why) { throw Damage("it names a record '" + printable(name) + "', " + why); };
  const bool chosen = name.starts_with(folder + "/extra/");
  if (name.find('\0') != std::string::npos) bad("of which torch would read only the part before the zero");
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = std::string_view(name).substr(begin, end - begin);
    // Of the file's own name torch makes a folder "..", of "...pt": what is written here has another.
    if (begin > 0 && part == "..") bad("which leads out of a folder it is unpacked to");
    const bool torchs = !chosen && begin > 0;
    // A folder's name ends with a slash, behind which nothing is left.
    if (torchs && (part == "." || (part.empty() && begin < name.size()))) bad("a path that torch does not write");
    const auto odd = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\'; };
    if (torchs && std::any_of(part.begin(), part.end(), odd)) bad("with characters that torch does not write");
    begin = end + 1;
  }
}

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// ---- records

// The local header must repeat what the directory says; torch reads the lengths of name and extra field from it.
Record locate(const Bytes& bytes, const Entry& entry, std::uint64_t limit) {
  constexpr std::uint64_t header_size = 30;
  constexpr std::uint32_t header_signature = 0x04034b50;
  if (entry.header > limit || limit - entry.header < header_size) refuse(entry.name, "it would lie outside the file");
  std::array<unsigned char, header_size> header_data;
  bytes.read(entry.header, header_data);
  Fields header(header_data);
  if (header.four() != header_signature) refuse(entry.name, "it has no header");
  header.two();  // version
  const std::uint16_t flags = header.two(), method = header.two();
  header.four();  // date
  const std::uint32_t checksum = header.four();
  std::uint64_t stored = header.four(), size = header.four();
  const std::uint64_t name_size = header.two(), extra_size = header.two();
  const std::uint64_t room = limit - entry.header - header_size;
  if (name_size + extra_size > room || entry.stored > room - name_size - extra_size) {
    refuse(entry.name, "it would lie outside the file");
  }

  std::vector<unsigned char> behind(name_size + extra_size);
  bytes.read(entry.header + header_size, behind);
  const std::span<const unsigned char> name = std::span(behind).first(name_size);
  if (!std::equal(name.begin(), name.end(), entry.name.begin(), entry.name.end(),
                  [](unsigned char a, char b) { return a == static_cast<unsigned char>(b); })) {
    refuse(entry.name, "its header has another name");
  }
  if (flags != entry.flags || method != entry.method) refuse(entry.name, "its header contradicts the directory");
  if (size == in_extra_field && stored == in_extra_field) {
    Fields large = zip64_field(std::span(behind).subspan(name_size));
    size = large.eight();
    stored = large.eight();
  }
  const bool left_out = (flags & sizes_follow) && checksum == 0 && size == 0 && stored == 0;
  if (!left_out && (checksum != entry.checksum || size != entry.size || stored != entry.stored)) {
    refuse(entry.name, "its header contradicts the directory");
  }

  Record record;
  record.name = entry.name;
  record.header = entry.header;
  record.offset = entry.header + header_size + name_size + extra_size;
  record.stored = entry.stored;
  record.size = entry.size;
  record.checksum = entry.checksum;
  record.deflated = entry.method == deflated_method;
  return record;
}

// Where the record ends, with the descriptor that may follow its data: a checksum and both sizes of four or eight bytes
// each, usually behind a signature.
std::uint64_t end_of(const Bytes& bytes, const Record& record, const Entry& entry, std::uint64_t limit) {
  const std::uint64_t end = record.offset + record.stored;
  if (!(entry.flags & sizes_follow)) return end;
  constexpr std::uint32_t signature = 0x08074b50;
  std::array<unsigned char, 24> data{};
  const std::uint64_t there = std::min<std::uint64_t>(data.size(), limit - end);
  bytes.read(end, std::span(data).first(there));
  for (const bool large : {false, true}) {
    for (const bool signed_ : {true, false}) {
      const std::uint64_t length = (signed_ ? 8U : 4U) + (large ? 16U : 8U);
      if (length > there) continue;
      Fields fields(data);
      if (signed_ && fields.four() != signature) continue;
      if (fields.four() != record.checksum) continue;
      const std::uint64_t stored = large ? fields.eight() : fields.four();
      const std::uint64_t size = large ? fields.eight() : fields.four();
      if (stored == record.stored && size == record.size) return end + length;
    }
  }
  refuse(record.name, "what follows its data contradicts the directory");
}

void check_kind(const Entry& entry) {
  // torch reads nothing of such a record, and takes for its content what is in memory.
  if (entry.folder && !entry.name.ends_with('/')) refuse(entry.name, "it is marked as a folder");
  if (entry.flags & ~known_flags) refuse(entry.name, "it is encrypted, or packed in a way that torch does not read");
  if (entry.method == stored_method) {
    if (entry.stored != entry.size) refuse(entry.name, "its two sizes differ");
  } else if (entry.method != deflated_method) {
    refuse(entry.name, "it is compressed in a way that torch does not read");
  } else if (entry.size / best_ratio > entry.stored) {
    refuse(entry.name, "it cannot become as large as the archive says");
  }
}

// ---- data

using Sink = std::function<void(const unsigned char* data, std::size_t size)>;

class DataCheck {
 public:
  DataCheck(const Bytes& bytes, const Advance& advance, std::uint64_t total)
      : bytes_(bytes), advance_(advance), total_(total) {}

  // `sink` sees what the record holds, piece by piece.
  void operator()(const Record& record, const Sink& sink = {}) {
    checksum_ = 0;
    sink_ = &sink;
    record.deflated ? inflated(record) : plain(record);
    if (checksum_ != record.checksum) refuse(record.name, "its checksum is wrong");
  }

 private:
  // The next piece of a record, at most as large as `room`.
  std::span<const unsigned char> piece(const Record& record, std::uint64_t done, std::size_t room) {
    buffer_.resize(std::min<std::uint64_t>(room, record.stored - done));
    bytes_.read(record.offset + done, buffer_);
    done_ += buffer_.size();
    if (advance_) advance_(done_, total_);
    return buffer_;
  }

  void took(const unsigned char* data, std::size_t size) {
    checksum_ = crc32(checksum_, data, size);
    if (*sink_) (*sink_)(data, size);
  }

  void plain(const Record& record) {
    for (std::uint64_t done = 0; done < record.stored;) {
      const auto data = piece(record, done, chunk);
      took(data.data(), data.size());
      done += data.size();
    }
  }

  void inflated(const Record& record) {
    std::uint64_t done = 0;
    const auto next = [&](unsigned char* into, std::size_t room) {
      const auto data = piece(record, done, room);
      std::copy(data.begin(), data.end(), into);
      done += data.size();
      return data.size();
    };
    const auto sink = [&](const unsigned char* data, std::size_t size) { took(data, size); };
    try {
      const Inflated result = inflate(next, sink, record.size);
      if (result.read != record.stored) refuse(record.name, "something follows its compressed data");
      if (result.written != record.size) refuse(record.name, "it is smaller than the archive says");
    } catch (const InflateError& error) {
      refuse(record.name, error.what());
    }
  }

  const Bytes& bytes_;
  const Advance& advance_;
  const std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::uint32_t checksum_ = 0;
  const Sink* sink_ = nullptr;
  std::vector<unsigned char> buffer_;
};

// ---- the whole

Archive check(const Bytes& bytes, const Advance& advance) {
  Directory directory = read_directory(bytes);
  if (directory.entries.empty()) throw Damage("it is empty, without a record");
  std::sort(directory.entries.begin(), directory.entries.end(),
            [](const Entry& a, const Entry& b) { return a.header < b.header; });

  Archive archive;
  archive.folder = directory.entries.front().name.substr(0, directory.entries.front().name.find('/'));
  std::unordered_set<std::string> names;
  std::uint64_t free = 0, inflated = 0, total = 0;
  for (const Entry& entry : directory.entries) {
    check_name(entry.name, archive.folder);
    if (archive.folder.empty() || !entry.name.starts_with(archive.folder + '/')) {
      throw Damage("its records are not all in one folder");
    }
    // torch finds records without regard to the case of letters.
    if (!names.insert(lower(entry.name)).second) {
      throw Damage("it has two records named '" + printable(entry.name) + "' (the case of letters does not count)");
    }
    check_kind(entry);
    Record record = locate(bytes, entry, directory.begin);
    if (record.header < free) refuse(record.name, "it overlaps the one before");
    free = end_of(bytes, record, entry, directory.begin);
    total += record.stored;  // cannot overflow: they do not overlap
    if (record.deflated && (inflated += record.size) > largest_inflated(bytes.size())) {
      throw Damage("it would become too large when decompressed");
    }
    record.name.erase(0, archive.folder.size() + 1);
    if (record.name.empty() || record.name.ends_with('/')) {
      if (record.size != 0) refuse(entry.name, "it is a folder and has content");
    } else {
      archive.places.emplace(record.name, archive.records.size());
      archive.records.push_back(std::move(record));
    }
  }

  DataCheck check_data(bytes, advance, total);
  for (const Record& record : archive.records) check_data(record);
  return archive;
}

// What a file is that has no directory at its end, from its first bytes.
std::string kind_of(const Bytes& bytes) {
  if (bytes.size() == 0) return "it is empty, as a download or a copy that failed leaves it; get or save it again";
  std::array<unsigned char, 4> begin{};
  bytes.read(0, std::span(begin).first(std::min<std::uint64_t>(4, bytes.size())));
  if (begin[0] == 'P' && begin[1] == 'K') return {};
  if (begin[0] == 0x80)
    return "it is a pickle, as torch.save wrote before version 1.6; save it again (a module with torch.jit.save)";
  return "it is not a torch file; save it with torch (a module with torch.jit.save)";
}

}  // namespace

const Record* Archive::find(const std::string& name) const {
  const auto found = places.find(name);
  return found == places.end() ? nullptr : &records[found->second];
}

std::vector<std::string> Archive::below(const std::string& prefix) const {
  std::vector<std::string> names;
  for (const Record& record : records) {
    if (record.name.starts_with(prefix)) names.push_back(record.name.substr(prefix.size()));
  }
  return names;
}

std::uint64_t Archive::size() const {
  std::uint64_t sum = 0;
  for (const Record& record : records) sum += record.size;
  return sum;
}

Archive check_archive(const Bytes& bytes, const std::string& path, const Advance& advance) {
  try {
    if (const std::string kind = kind_of(bytes); !kind.empty()) throw Failure(Exit::unreadable, path + ": " + kind);
    return check(bytes, advance);
  } catch (const Damage& damage) {
    throw Failure(Exit::unreadable, path + ": damaged archive: " + damage.what() + "; get or save the file again");
  }
}

std::vector<unsigned char> content(const Bytes& bytes, const Record& record) {
  std::vector<unsigned char> data;
  DataCheck(bytes, {}, record.stored)(
      record, [&](const unsigned char* piece, std::size_t size) { data.insert(data.end(), piece, piece + size); });
  return data;
}

}  // namespace tailor::tool
