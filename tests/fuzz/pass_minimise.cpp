#include "pass_minimise.h"

#include <algorithm>
#include <vector>

#include "pass_workers.h"

namespace tailor::fuzz {

namespace {

// Another chain that is missed for another reason is another failure.
bool is_same(const Verdict& a, const Verdict& b) {
  return a.kind == b.kind &&
         ((a.kind != Kind::missed && a.kind != Kind::elsewhere) || plain_words(a.text) == plain_words(b.text));
}

}  // namespace

Without minimised(const Model& model, const Verdict& verdict) {
  std::vector<int> kept;
  for (int number = 1; number <= model.numbers; ++number) kept.push_back(number);
  Without without;
  // Large parts first: half of what is left, a quarter, … one by one, until nothing more goes.
  for (std::size_t size = kept.size() / 2; size > 0;) {
    bool dropped = false;
    for (std::size_t begin = 0; begin < kept.size();) {
      const auto first = kept.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = kept.begin() + static_cast<std::ptrdiff_t>(std::min(begin + size, kept.size()));
      Without more = without;
      more.insert(first, last);
      if (is_same(judge_apart(model, more), verdict)) {
        without = std::move(more);
        kept.erase(first, last);
        dropped = true;
      } else {
        begin += size;
      }
    }
    if (size > 1)
      size /= 2;
    else if (!dropped)
      break;
  }
  return without;
}

}  // namespace tailor::fuzz
