// Which thread holds what of a tail, decided on the host.
//
// A row is cut into groups: those of a group norm, else one packet of neighbouring columns. A group is held by a *slot*
// of `lanes` threads with a packet of `width` elements each; a block has as many slots as fit. A block keeps its columns
// and marches down the rows, so that what belongs to a column is read once.
#pragma once
#include <cstdint>

#include "../ceiling.h"

namespace tailor::cuda {

constexpr int most_threads = 256;  // of a block

struct Layout {
  int lanes = 1;
  std::int64_t group_width = 0;
  std::int64_t groups = 0;  // of a row
  int rows_per_pass = 1;    // where the slots of a block are more than the groups of a row
  std::int64_t column_blocks = 1;
  std::int64_t row_blocks = 1;
};

constexpr int next_power_of_two(std::int64_t value) {
  int power = 1;
  while (power < value) power *= 2;
  return power;
}

// `rows_at_once`: how many rows of its columns a thread works on at a time. `blocks`: how many fill the GPU well.
inline Layout lay_out(std::int64_t rows, std::int64_t columns, std::int64_t group_width, int width, int rows_at_once,
                      std::int64_t blocks) {
  Layout layout;
  layout.lanes = next_power_of_two(ceiling(group_width, width));
  layout.group_width = group_width;
  layout.groups = columns / group_width;
  const int slots = most_threads / layout.lanes;
  if (layout.groups >= slots)
    layout.column_blocks = ceiling(layout.groups, slots);
  else
    layout.rows_per_pass = static_cast<int>(slots / layout.groups);
  const std::int64_t passes = ceiling(rows, std::int64_t{layout.rows_per_pass} * rows_at_once);
  const std::int64_t wanted = ceiling(blocks, layout.column_blocks);
  layout.row_blocks = passes < wanted ? passes : wanted;
  if (layout.row_blocks > 65535) layout.row_blocks = 65535;
  return layout;
}

}  // namespace tailor::cuda
