#include "pass_calls.h"

namespace tailor::fuzz {

void draw_calls(Random& random, Model& model, int methods) {
  const int count = 2 + static_cast<int>(random.below(3));
  const bool low = model.type != Type::float64;
  for (int i = 0; i < count; ++i) {
    Call call{++model.numbers,    methods > 1 && random.chance(0.4) ? "other" : "forward",
              Input::plain,       2 + static_cast<std::int64_t>(random.below(6)),
              random.chance(0.6), random.chance(0.45)};
    const double draw = random.uniform();
    if (draw > 0.95)
      call.input = Input::strided;
    else if (draw > 0.92)
      call.input = Input::row;
    else if (draw > 0.905 && !low)
      call.input = Input::none;
    else if (draw > 0.885 && !low)
      call.input = Input::wide;
    else if (draw > 0.87 && !low)
      call.input = Input::flat;
    else if (draw > 0.83 && !low)
      call.input = Input::cube;
    else if (draw > 0.815 && !low)
      call.input = Input::other_dtype;
    else if (draw > 0.805 && !low)
      call.input = Input::integers;
    model.calls.push_back(call);
  }
}

std::vector<Door> draw_doors(std::uint64_t seed) {
  const double draw = Random(mixed(seed, "door")).uniform();
  if (draw > 0.28) return {};
  return {draw < 0.04   ? Door::fuse
          : draw < 0.08 ? Door::executor
          : draw < 0.11 ? Door::file
          : draw < 0.20 ? Door::hook
          : draw < 0.26 ? Door::unfuse
                        : Door::back};
}

}  // namespace tailor::fuzz
