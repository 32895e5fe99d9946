// Numbers that are the same on every machine for the same seed: std's distributions are not.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace tailor::fuzz {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  Random(std::uint64_t seed, std::uint64_t part) : state_(seed * 0x9e3779b97f4a7c15 + part * 0xd1b54a32d192ed03) {}

  std::uint64_t next() {  // splitmix64
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  std::size_t below(std::size_t end) { return end == 0 ? 0 : next() % end; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double p) { return uniform() < p; }

  template <class T>
  T of(std::initializer_list<T> all) {
    return all.begin()[below(all.size())];
  }
  template <class T>
  const T& of(const std::vector<T>& all) {
    return all[below(all.size())];
  }
  template <class T>
  T& of(std::vector<T>& all) {
    return all[below(all.size())];
  }
  const char* text(std::initializer_list<const char*> all) { return of(all); }

 private:
  std::uint64_t state_;
};

// Another stream for each name and number that it is made from.
constexpr std::uint64_t mixed(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = seed ^ 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace tailor::fuzz
