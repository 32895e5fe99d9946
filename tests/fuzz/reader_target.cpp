// The reader on bytes that may be anything. The first byte says which part of it reads the rest.
#include "reader_target.h"

#include <cstdlib>

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

void archive(std::span<const unsigned char> input) {
  const MemoryBytes bytes(input);
  const Archive archive = check_module_archive(bytes, "model.pt");
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
  const Inflated result = inflate(
      next, [&](const unsigned char*, std::size_t size) { written += size; }, limit);
  require(result.written == written && written <= limit && result.read <= input.size());
}

void pickle(std::span<const unsigned char> input) {
  check_pickle(input, [](const std::string& key) {
    return key.size() == 1 ? std::optional<std::uint64_t>(key[0]) : std::nullopt;
  });
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

}  // namespace tailor::fuzz
