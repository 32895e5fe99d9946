// The formula run backwards over a tile (kernels/gradient.h), and over whole rows: chains without a norm, and batch norms.
#pragma once
#include "sums.h"

namespace tailor::cpu::TAILOR_ISA {

// Takes the gradients that arrive at the leaves and at the norm's result.
template <class Chain, class T, int Rows, Phase phase, class Into>
struct Gather {
  using F = Compute<T>;
  using Value = Values<F, Rows>;

  Into& sums;
  const int at;
  Value of_y{};
  Value of_norm{};

  template <int which>
  TAILOR_INLINE void sum(const Value& g) {
    if constexpr (made<Chain, phase>.at[which]) sums.add(which, at, sum_of_rows<0, Rows, F>(g));
  }
  TAILOR_INLINE void linear(const Value& g) { of_y = plus(of_y, g); }
  TAILOR_INLINE void normed(const Value& g) { of_norm = plus(of_norm, g); }
  template <int index>
  TAILOR_INLINE void vector(const Value& g) {
    sum<Sums<Chain>::vector + index>(g);
  }

 private:
  static TAILOR_INLINE Value plus(const Value& a, const Value& b) {
    return map(
        a, [](auto x, auto y) { return x + y; }, b);
  }
};

template <class Chain, class T, int Rows>
using TapedEvaluation = Taped<Chain, typename MathOf<T>::type, Evaluation<Chain, T, Rows>>;

// From the result to the norm: returns the normal values, and leaves in `sink` what arrives at the norm's result. `v` is
// what the norm reads; the block's scale is the norm's weight.
template <class Chain, class T, int Rows, class Mean, class Deviation, class Sink>
TAILOR_INLINE auto back_to_norm(const Block<Chain, T>& block, int at, const Values<Compute<T>, Rows>& y,
                                const Values<Compute<T>, Rows>& v, const Mean& mean, const Deviation& inverse_deviation,
                                const Values<Compute<T>, Rows>& g, Sink& sink) {
  using F = Compute<T>;
  const auto normal = normal_values<F>(v, mean, inverse_deviation, all(F(0)));
  const auto normed = map(
      normal, [](auto n, auto w, auto b) { return n * w + b; }, column(block.scale + at), column(block.bias + at));
  Evaluation<Chain, T, Rows> evaluation(block, at, y, normed);
  TapedEvaluation<Chain, T, Rows> taped{evaluation};
  After<Chain>::fold(taped).backward(g, sink);
  sink.template sum<Sums<Chain>::norm_weight>(map(
      sink.of_norm, [](auto a, auto n) { return a * n; }, normal));
  sink.template sum<Sums<Chain>::norm_bias>(sink.of_norm);
  return normal;
}

// From what the norm reads, or without a norm from the result, to y.
template <class Chain, class T, int Rows, class Sink>
TAILOR_INLINE auto back_to_y(const Block<Chain, T>& block, int at, const Values<Compute<T>, Rows>& y,
                             const Values<Compute<T>, Rows>& g, Sink& sink) {
  Evaluation<Chain, T, Rows> evaluation(block, at, y);
  TapedEvaluation<Chain, T, Rows> taped{evaluation};
  Before<Chain>::fold(taped).backward(g, sink);
  sink.template sum<Sums<Chain>::bias>(sink.of_y);
  return sink.of_y;
}

// A block with what a batch norm's derivative needs of its columns.
template <class Chain, class T>
struct BackwardBlock : Block<Chain, T> {
  using F = Compute<T>;
  static constexpr int room = has_batch_norm<Chain> ? Block<Chain, T>::width : lanes<F>;

  alignas(64) F inverse_deviation[room];
  alignas(64) F slope[room];  // of the norm, were its statistics numbers
  alignas(64) F tilt[room];   // the norm's sums over the number of rows
  alignas(64) F shift[room];

  BackwardBlock(const Tail& tail, std::int64_t columns_of_tail, std::int64_t first, int columns)
      : Block<Chain, T>(tail, first, columns) {
    if constexpr (has_batch_norm<Chain>) {
      if (tail.norm.batch_statistics) {
        const F* saved = static_cast<const F*>(tail.norm.saved) + first;
        read<F>(saved, columns, this->mean);
        read<F>(saved + columns_of_tail, columns, inverse_deviation);
      } else {
        read<T>(raw<T>(tail.norm.mean) + first, columns, this->mean);
        read<T>(raw<T>(tail.norm.var) + first, columns, inverse_deviation);
        for (int i = 0; i < columns; ++i)
          inverse_deviation[i] = static_cast<F>(1 / root(static_cast<double>(inverse_deviation[i]) + tail.norm.eps));
      }
      for (int i = 0; i < columns; ++i) slope[i] = this->scale[i] * inverse_deviation[i];
    }
  }
  void take_sums(const SumMemory<Chain, T>& memory, std::int64_t rows) {
    for (int i = 0; i < this->count; ++i) {
      tilt[i] = static_cast<F>(memory.total(Sums<Chain>::norm_weight)[this->first + i] / static_cast<double>(rows));
      shift[i] = static_cast<F>(memory.total(Sums<Chain>::norm_bias)[this->first + i] / static_cast<double>(rows));
    }
  }
  void repeat(int times) {
    if constexpr (has_batch_norm<Chain>)
      for (F* each : {inverse_deviation, slope, tilt, shift}) Block<Chain, T>::repeat(each, times);
    Block<Chain, T>::repeat(times);
  }
};

template <Phase phase, int Rows, class Chain, class T>
TAILOR_INLINE Values<Compute<T>, Rows> gradient_of_y(const BackwardBlock<Chain, T>& block, int at,
                                                     const Values<Compute<T>, Rows>& y,
                                                     const Values<Compute<T>, Rows>& g,
                                                     BlockSums<Chain, T, phase>& sums) {
  Gather<Chain, T, Rows, phase, BlockSums<Chain, T, phase>> sink{sums, at};
  if constexpr (!has_batch_norm<Chain>) {
    return back_to_y<Chain, T, Rows>(block, at, y, g, sink);
  } else {
    Evaluation<Chain, T, Rows> evaluation(block, at, y);
    const auto normal = back_to_norm<Chain, T, Rows>(block, at, y, evaluation.before_norm(), column(block.mean + at),
                                                     column(block.inverse_deviation + at), g, sink);
    const auto slope = column(block.slope + at);
    if constexpr (phase == Phase::norm_sums) {
      return {};
    } else if constexpr (phase == Phase::whole) {
      const auto of_v = map(
          sink.of_norm, [](auto a, auto s) { return a * s; }, slope);
      return back_to_y<Chain, T, Rows>(block, at, y, of_v, sink);
    } else {
      const auto of_v = map(
          sink.of_norm, [](auto a, auto n, auto t, auto d, auto s) { return (a - d - n * t) * s; }, normal,
          column(block.tilt + at), column(block.shift + at), slope);
      return back_to_y<Chain, T, Rows>(block, at, y, of_v, sink);
    }
  }
}

// `Rows` rows of a block.
template <Phase phase, int Rows, class Chain, class T>
TAILOR_INLINE void rows_backward(const BackwardBlock<Chain, T>& block, const Raw<T>* y, const Raw<T>* of_out,
                                 Raw<T>* of_y, std::int64_t stride, BlockSums<Chain, T, phase>& sums) {
  constexpr int width = lanes<Compute<T>>;
  const auto each = [&](int at, auto count) __attribute__((always_inline)) {
    const auto made_here = gradient_of_y<phase, Rows>(block, at, load_rows<T, Rows>(y + at, stride, count),
                                                      load_rows<T, Rows>(of_out + at, stride, count), sums);
    if constexpr (phase != Phase::norm_sums) store_rows<T, Rows>(of_y + at, stride, made_here, count);
  };
  int at = 0;
  for (; at + width <= block.count; at += width) each(at, Whole{});
  if (at < block.count) each(at, block.count - at);
  sums.took(Rows);
}

// A row of `tail` is `times` rows of what its operands are for; its parts are those of the chunks from `chunk` on.
template <class Chain, class T, Phase phase>
void run_rows_backward(const Tail& tail, const TailGradient& gradient, const SumMemory<Chain, T>& memory,
                       const Parallel& parallel, int times, std::int64_t first_chunk, std::int64_t rows_of_batch) {
  const Chunks chunks = memory.chunks_of(tail.rows);
  const auto work = [&](std::int64_t first, int count, std::int64_t chunk, std::int64_t end_chunk) {
    BackwardBlock<Chain, T> block(tail, tail.columns / times, first, count / times);
    if constexpr (phase == Phase::before_norm) block.take_sums(memory, rows_of_batch);
    if (times > 1) block.repeat(times);
    const std::int64_t stride = tail.columns;
    BlockSums<Chain, T, phase> sums;
    for (; chunk < end_chunk; ++chunk) {
      sums.begin(memory, gradient, first_chunk + chunk, first, count);
      std::int64_t row = chunk * chunks.rows;
      const std::int64_t end = row + chunks.rows < tail.rows ? row + chunks.rows : tail.rows;
      const Raw<T>* y = raw<T>(tail.y) + row * stride + first;
      const Raw<T>* of_out = raw<T>(gradient.of_out) + row * stride + first;
      Raw<T>* of_y = static_cast<Raw<T>*>(tail.out) + row * stride + first;
      constexpr int many = rows_at_once;
      for (; row + many <= end; row += many, y += many * stride, of_out += many * stride, of_y += many * stride)
        rows_backward<phase, many>(block, y, of_out, of_y, stride, sums);
      for (; row < end; ++row, y += stride, of_out += stride, of_y += stride)
        rows_backward<phase, 1>(block, y, of_out, of_y, stride, sums);
      sums.put_down();
    }
  };
  for_each_block(parallel, chunks.count, tail.columns, times > 1 ? tail.columns : summing_width,
                 ceiling(elements_per_thread, chunks.rows), work);
}

}  // namespace tailor::cpu::TAILOR_ISA
