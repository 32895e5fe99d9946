// The reader on bytes that may be anything. The first byte says which part of it reads the rest.
#include "reader_target.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "reader_memory.h"
#include "tools/archive.h"
#include "tools/crc32.h"
#include "tools/failure.h"
#include "tools/inflate.h"
#include "tools/pickle.h"
#include "tools/zip_directory.h"

namespace tailor::tool {

// In place of the true one: every record whose checksum says so is right, so that mutants get past it.
std::uint32_t crc32(std::uint32_t, const void*, std::size_t) { return fuzz::right_checksum; }

}  // namespace tailor::tool

namespace tailor::fuzz {
namespace {

using namespace tailor::tool;

void require(bool holds) {
  if (!holds) std::abort();
}

std::uint64_t most_held = 0;

// Its buffers, and some of what is read whole: a directory or a pickle. pickle.h says why so much.
std::uint64_t allowed(std::uint64_t read_whole) { return (128 << 10) + 24 * read_whole; }

// Runs it; whether it returns or throws, it must have held no more than `most` bytes at once.
template <class Work>
auto within(std::uint64_t most, const Work& work) {
  struct Check {
    std::uint64_t most;
    ~Check() {
      const std::uint64_t held = held_at_most();
      most_held = std::max(most_held, held);
      if (held <= most) return;
      std::fprintf(stderr, "\nthe reader held %llu bytes at once, where %llu would do\n",
                   static_cast<unsigned long long>(held), static_cast<unsigned long long>(most));
      std::abort();
    }
  };
  watch_memory();
  const Check check{most};
  return work();
}

bool is_pickle(const Record& record) { return record.name.ends_with("pkl"); }

void archive(std::span<const unsigned char> input) {
  const MemoryBytes bytes(input);
  // What a record becomes when decompressed is held for pickles only, and for one at a time.
  const Archive sound = within(allowed(input.size()), [&] { return check_archive(bytes, "model.pt"); });
  std::uint64_t pickle = 0;
  for (const Record& record : sound.records)
    if (is_pickle(record)) pickle = std::max(pickle, record.size);
  const Archive archive =
      within(allowed(input.size() + pickle), [&] { return check_module_archive(bytes, "model.pt"); });
  std::uint64_t end = 0;
  for (const Record& record : archive.records) {  // what was accepted lies in the file, one after another
    require(record.offset >= end && record.stored <= input.size() && record.offset <= input.size() - record.stored);
    end = record.offset + record.stored;
    require(record.size > std::uint64_t{1} << 20 || content(bytes, record).size() == record.size);
    require(record.name.find("..") == std::string::npos || record.name.find("../") == std::string::npos);
    require(archive.find(record.name) == &record);
  }
}

void stream(std::span<const unsigned char> input) {
  constexpr std::uint64_t limit = 1 << 16;
  std::size_t at = 0, written = 0;
  const auto next = [&](unsigned char* into, std::size_t size) {
    const std::size_t got = std::min({size, input.size() - at, std::size_t{7}});
    std::copy_n(input.begin() + static_cast<std::ptrdiff_t>(at), got, into);
    at += got;
    return got;
  };
  const Inflated result = within(allowed(0), [&] {
    return inflate(
        next, [&](const unsigned char*, std::size_t size) { written += size; }, limit);
  });
  require(result.written == written && written <= limit && result.read <= input.size());
}

void pickle(std::span<const unsigned char> input) {
  const auto size_of = [](const std::string& key) {
    return key.size() == 1 ? std::optional<std::uint64_t>(key[0]) : std::nullopt;
  };
  within(allowed(input.size()), [&] { check_pickle(input, size_of); });
}

}  // namespace

void run_reader(std::span<const unsigned char> input) {
  if (input.empty()) return;
  try {
    switch (input[0] % 3) {
      case 0:
        return archive(input.subspan(1));
      case 1:
        return stream(input.subspan(1));
      default:
        return pickle(input.subspan(1));
    }
  } catch (const Failure& failure) {
    require(failure.exit == Exit::unreadable && std::string(failure.what()).find('\n') == std::string::npos);
  } catch (const Damage&) {
  } catch (const InflateError&) {
  }  // anything else ends the process, and that is a finding
}

std::uint64_t reader_held_at_most() { return most_held; }

}  // namespace tailor::fuzz
