// The backward of a group norm, a row at a time: the statistics anew, then what arrives at the norm, whose sums over each
// group are needed before anything can be said of y, then the rest. What one pass has for the next stays in the first-level
// cache, unless a group is wider than a block: then it is computed again.
#pragma once
#include "backward_rows.h"
#include "groups.h"

namespace tailor::cpu::TAILOR_ISA {

// The gradient of what a group norm reads; `weighted` is the norm's, times its weight.
template <class Value, class Tilt, class Shift, class Deviation>
TAILOR_INLINE Value through_group_norm(const Value& weighted, const Value& normal, const Tilt& tilt, const Shift& shift,
                                       const Deviation& inverse_deviation) {
  return map(
      weighted, [](auto a, auto n, auto t, auto d, auto s) { return (a - d - n * t) * s; }, normal, tilt, shift,
      inverse_deviation);
}

template <class F>
TAILOR_INLINE Values<F, 1> tile_of(const F* values) {
  return {{{load<F>(values)}}};
}

template <class Chain, class T>
struct NarrowGroupsBackward {
  using F = Compute<T>;
  static constexpr auto phase = Phase::whole;
  static constexpr int room = NarrowGroups<Chain, T>::room;
  using Into = BlockSums<Chain, T, phase>;

  NarrowGroups<Chain, T> groups;
  alignas(64) F normal[room];
  alignas(64) F weighted[room];
  alignas(64) F product[room];  // of the two
  alignas(64) F of_y[room];     // what the formula behind the norm sends there
  alignas(64) F tilt[room];
  alignas(64) F shift[room];

  NarrowGroupsBackward(const Tail& tail, int width, std::int64_t first, int count, int times)
      : groups(tail, width, first, count, times) {
    for (F* each : {weighted, product}) store<F>(each + count, Lanes<F>{});
  }

  // One row.
  void run(const Raw<T>* y, const Raw<T>* of_out, Raw<T>* to, Into& sums) {
    const Block<Chain, T>& block = groups.block;
    groups.find_statistics(y);
    groups.for_each_vector(
        y, [&](int at, const Values<F, 1>& tile, auto count) __attribute__((always_inline)) {
          Gather<Chain, T, 1, phase, Into> sink{sums, at};
          const auto n = back_to_norm<Chain, T, 1>(block, at, tile, tile_of(groups.values + at),
                                                   column(groups.mean + at), column(groups.inverse_deviation + at),
                                                   load_rows<T, 1>(of_out + at, 0, count), sink);
          const Lanes<F> w = sink.of_norm.at[0][0] * load<F>(block.scale + at);
          store<F>(normal + at, n.at[0][0]);
          store<F>(weighted + at, w);
          store<F>(product + at, w * n.at[0][0]);
          store<F>(of_y + at, sink.of_y.at[0][0]);
        });
    sum_groups(weighted, groups.by_group[0], shift);
    sum_groups(product, groups.by_group[1], tilt);
    groups.for_each_vector(
        y, [&](int at, const Values<F, 1>& tile, auto count) __attribute__((always_inline)) {
          Gather<Chain, T, 1, phase, Into> sink{sums, at, tile_of(of_y + at)};
          const auto of_v = through_group_norm(tile_of(weighted + at), tile_of(normal + at), column(tilt + at),
                                               column(shift + at), column(groups.inverse_deviation + at));
          store_rows<T, 1>(to + at, 0, back_to_y<Chain, T, 1>(block, at, tile, of_v, sink), count);
        });
    sums.took(1);
  }

  // The mean of each group, for each of its columns.
  void sum_groups(const F* values, F* of_group, F* of_column) const {
    const int width = groups.width;
    const int count = groups.block.count / width;
    const F share = F(1) / static_cast<F>(width);
    for (int g = 0; g < count; ++g)
      of_group[g] = share * sum_of_terms(values + g * width, width, [](Lanes<F> v) { return v; });
    spread(of_group, width, count, of_column);
  }
};

// Groups wider than a block: what arrives at the norm is computed twice, for its sums and for what comes of them.
template <class Chain, class T>
struct WideGroupsBackward {
  using F = Compute<T>;
  static constexpr auto phase = Phase::whole;
  static constexpr int most_rows = WideGroups<Chain, T>::most_rows;

  const WideGroups<Chain, T> groups;
  const SumMemory<Chain, T>& memory;
  const TailGradient& gradient;
  F mean[most_rows] = {};
  F inverse_deviation[most_rows] = {};
  F tilt[most_rows] = {};
  F shift[most_rows] = {};

  struct AtNorm {
    Values<F, 1> weighted, normal;
  };
  template <class Sink>
  TAILOR_INLINE AtNorm arrive(const Block<Chain, T>& block, int row, int at, const Values<F, 1>& y,
                              const Values<F, 1>& g, Sink& sink) const {
    Evaluation<Chain, T, 1> evaluation(block, at, y);
    const auto normal = back_to_norm<Chain, T, 1>(block, at, y, evaluation.before_norm(), all(mean[row]),
                                                  all(inverse_deviation[row]), g, sink);
    return {map(
                sink.of_norm, [](auto a, auto w) { return a * w; }, column(block.scale + at)),
            normal};
  }

  void find_sums(const Raw<T>* y, const Raw<T>* of_out, int rows) {
    Lanes<F> of_block{};
    Lanes<F> product_of_block{};
    double sums[most_rows] = {};
    double products[most_rows] = {};
    NoSums none;
    groups.for_each_vector(
        y, rows,
        [&](int row, const auto& block, std::int64_t begin, int at, const auto& tile, auto count) {
          Gather<Chain, T, 1, phase, NoSums> sink{none, at};
          const auto g = load_rows<T, 1>(of_out + row * groups.tail.columns + begin + at, 0, count);
          const AtNorm found = arrive(block, row, at, tile, g, sink);
          const Lanes<F> weighted = found.weighted.at[0][0];
          of_block += only<F>(weighted, count);
          product_of_block += only<F>(weighted * found.normal.at[0][0], count);
        },
        [&](int row) {
          sums[row] += static_cast<double>(sum<F>(of_block));
          products[row] += static_cast<double>(sum<F>(product_of_block));
          of_block = product_of_block = Lanes<F>{};
        });
    for (int row = 0; row < rows; ++row) {
      shift[row] = static_cast<F>(sums[row] / static_cast<double>(groups.width));
      tilt[row] = static_cast<F>(products[row] / static_cast<double>(groups.width));
    }
  }

  // Some rows of a chunk.
  void run(const Raw<T>* y, const Raw<T>* of_out, Raw<T>* to, int rows, std::int64_t chunk, bool first_of_chunk) {
    groups.find_statistics(y, rows, mean, inverse_deviation);
    find_sums(y, of_out, rows);
    using Into = BlockSums<Chain, T, phase>;
    Into sums;
    groups.for_each_vector(
        y, rows,
        [&](int row, const auto& block, std::int64_t begin, int at, const auto& tile, auto count) {
          if (row == 0 && at == 0) sums.begin(memory, gradient, chunk, block.first, block.count, first_of_chunk);
          Gather<Chain, T, 1, phase, Into> sink{sums, at};
          const std::int64_t place = row * groups.tail.columns + begin + at;
          const AtNorm found = arrive(block, row, at, tile, load_rows<T, 1>(of_out + place, 0, count), sink);
          const auto of_v = through_group_norm(found.weighted, found.normal, all(tilt[row]), all(shift[row]),
                                               all(inverse_deviation[row]));
          store_rows<T, 1>(to + place, 0, back_to_y<Chain, T, 1>(block, at, tile, of_v, sink), count);
        },
        [&](int row) {
          if (row == rows - 1) sums.put_down();
        });
  }
};

// A row of `tail` is `times` rows of what its operands are for; its parts are those of the chunks from `first_chunk` on.
template <class Chain, class T>
void run_groups_backward(const Tail& tail, const TailGradient& gradient, const SumMemory<Chain, T>& memory,
                         const Parallel& parallel, int times, std::int64_t first_chunk) {
  const std::int64_t width = tail.columns / tail.norm.groups;
  const std::int64_t stride = tail.columns;
  const Chunks chunks = memory.chunks_of(tail.rows);
  const std::int64_t grain = ceiling(elements_per_thread, chunks.rows);
  const bool is_wide = width > block_width<Compute<T>>;
  const auto work = [&](std::int64_t first, int count, std::int64_t chunk, std::int64_t end_chunk) {
    const Raw<T>* y = raw<T>(tail.y) + first;
    const Raw<T>* of_out = raw<T>(gradient.of_out) + first;
    Raw<T>* to = static_cast<Raw<T>*>(tail.out) + first;
    // Calls each(first row, end, chunk).
    const auto for_each_chunk = [&](auto each) {
      for (; chunk < end_chunk; ++chunk) {
        const std::int64_t row = chunk * chunks.rows;
        each(row, row + chunks.rows < tail.rows ? row + chunks.rows : tail.rows, first_chunk + chunk);
      }
    };
    if (is_wide) {
      WideGroupsBackward<Chain, T> groups{{tail, first, width}, memory, gradient};
      for_each_chunk([&](std::int64_t begin, std::int64_t end, std::int64_t place) {
        for (std::int64_t row = begin; row < end; row += groups.most_rows) {
          const auto rows = static_cast<int>(end - row < groups.most_rows ? end - row : groups.most_rows);
          groups.run(y + row * stride, of_out + row * stride, to + row * stride, rows, place, row == begin);
        }
      });
    } else {
      NarrowGroupsBackward<Chain, T> groups(tail, static_cast<int>(width), first, count, times);
      BlockSums<Chain, T, Phase::whole> sums;
      for_each_chunk([&](std::int64_t row, std::int64_t end, std::int64_t place) {
        sums.begin(memory, gradient, place, first, count);
        for (; row < end; ++row) groups.run(y + row * stride, of_out + row * stride, to + row * stride, sums);
        sums.put_down();
      });
    }
  };
  const std::int64_t of_block = width < summing_width ? summing_width / width * width : width;
  for_each_block(parallel, chunks.count, tail.columns, times > 1 ? tail.columns : of_block, grain, work);
}

}  // namespace tailor::cpu::TAILOR_ISA
