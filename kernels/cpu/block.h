// A block of neighbouring columns: small enough that everything that belongs to them stays in the first-level cache while
// the rows pass by. What belongs to them is read once, into the type that is computed in, and padded to whole vectors.
#pragma once
#include "../tail.h"
#include "math.h"
#include "share.h"

namespace tailor::cpu::TAILOR_ISA {

template <class F>
inline constexpr int block_width = 4096 / static_cast<int>(sizeof(F));

TAILOR_INLINE float root(float value) { return __builtin_sqrtf(value); }
TAILOR_INLINE double root(double value) { return __builtin_sqrt(value); }

// As many at a time as there are registers for.
inline constexpr int rows_at_once = vector_bytes == 64 ? 4 : 2;

// Calls work(Of<T>()) with the tail's type.
template <class T>
struct Of {};
template <class Work>
void with_element(Element element, const Work& work) {
  switch (element) {
    case Element::float64:
      return work(Of<double>());
    case Element::float32:
      return work(Of<float>());
    case Element::bfloat16:
      return work(Of<BFloat16>());
    case Element::float16:
      return work(Of<Float16>());
  }
}

template <class T>
TAILOR_INLINE const Raw<T>* raw(const void* data) {
  return static_cast<const Raw<T>*>(data);
}

template <class T>
void read(const Raw<T>* from, int count, Compute<T>* to) {
  using F = Compute<T>;
  int i = 0;
  for (; i + lanes<F> <= count; i += lanes<F>) store<F>(to + i, load<T>(from + i));
  if (i < count) store<F>(to + i, load<T>(from + i, count - i));
}

template <class F>
void fill(F value, int count, F* to) {
  for (int i = 0; i < count; i += lanes<F>) store<F>(to + i, all(value));
}

// One value for each column of a block, `otherwise` where there are none.
template <class T>
void read(const void* data, std::int64_t first, int count, Compute<T> otherwise, Compute<T>* to) {
  if (data != nullptr)
    read<T>(raw<T>(data) + first, count, to);
  else
    fill(otherwise, count, to);
}

template <class Chain, class T>
struct Block {
  using F = Compute<T>;
  static constexpr int width = block_width<F>;

  std::int64_t first = 0;
  int count = 0;
  alignas(64) F vectors[vectors_of<Chain> ? vectors_of<Chain> : 1][vectors_of<Chain> ? width : lanes<F>];
  F scalars[scalars_of<Chain> ? scalars_of<Chain> : 1];
  alignas(64) F linear_bias[width];
  // The norm: (v - mean) · scale + bias. A group norm has its mean elsewhere, and of the scale only the weight here.
  alignas(64) F mean[has_batch_norm<Chain> ? width : lanes<F>];
  alignas(64) F scale[has_batch_norm<Chain> || has_group_norm<Chain> ? width : lanes<F>];
  alignas(64) F bias[has_batch_norm<Chain> || has_group_norm<Chain> ? width : lanes<F>];

  Block(const Tail& tail, std::int64_t first_column, int columns) : first(first_column), count(columns) {
    for (int i = 0; i < vectors_of<Chain>; ++i) {
      const Operand& operand = tail.vectors[i];
      if (operand.per_column)
        read<T>(raw<T>(operand.data) + first, count, vectors[i]);
      else
        fill(load<T>(raw<T>(operand.data), 1)[0], count, vectors[i]);
    }
    for (int i = 0; i < scalars_of<Chain>; ++i) scalars[i] = static_cast<F>(tail.scalars[i]);
    read<T>(tail.bias, first, count, F(-0.0), linear_bias);  // with which every value stays what it is, -0 too
    if constexpr (has_batch_norm<Chain> || has_group_norm<Chain>) {
      read<T>(tail.norm.weight, first, count, F(1), scale);
      read<T>(tail.norm.bias, first, count, F(0), bias);
    }
  }

  // Batch norm: with the running statistics, or with those of the batch. A scale holds for a whole column, so that it is
  // worth being rounded but once.
  void find_statistics(const Tail& tail) {
    alignas(64) F variance[width];
    read<T>(raw<T>(tail.norm.mean) + first, count, mean);
    read<T>(raw<T>(tail.norm.var) + first, count, variance);
    for (int i = 0; i < count; ++i)
      scale[i] = static_cast<F>(static_cast<double>(scale[i]) / root(static_cast<double>(variance[i]) + tail.norm.eps));
  }
  void take_statistics(const F* means, const double* inverse_deviations) {
    read<F>(means + first, count, mean);
    for (int i = 0; i < count; ++i)
      scale[i] = static_cast<F>(static_cast<double>(scale[i]) * inverse_deviations[first + i]);
  }

  // So many rows of the tail as one, where a row is narrow: each column's numbers again for each of them.
  void repeat(int times) {
    for (int i = 0; i < vectors_of<Chain>; ++i) repeat(vectors[i], times);
    repeat(linear_bias, times);
    if constexpr (has_batch_norm<Chain>) repeat(mean, times);
    if constexpr (has_batch_norm<Chain> || has_group_norm<Chain>) {
      repeat(scale, times);
      repeat(bias, times);
    }
    count *= times;
  }
  void repeat(F* values, int times) const {
    for (int i = count; i < count * times; ++i) values[i] = values[i - count];
  }
};

// One vector for each row of a tile, and for its columns.
template <class F, int Rows>
using Values = Tile<Lanes<F>, Rows, 1>;
template <class F>
using Column = Columns<Lanes<F>, 1>;

template <class F>
TAILOR_INLINE Column<F> column(const F* values) {
  return {{load<F>(values)}};
}

// Eager scales before it subtracts. Which of the two ways overflows, and where infinities meet, shows in what is not finite.
template <class F, int Rows, class Mean, class Scale, class Bias>
[[gnu::cold]] Values<F, Rows> normal_by_eager(const Values<F, Rows>& v, const Values<F, Rows>& normal, const Mean& mean,
                                              const Scale& scale, const Bias& bias) {
  return map(
      v,
      [](auto x, auto usual, auto m, auto s, auto b) {
        return usual - usual == 0 ? usual : x * s + rounded_value(b - m * s);
      },
      normal, mean, scale, bias);
}

// (v - mean) · scale + bias
template <class F, int Rows, class Mean, class Scale, class Bias>
TAILOR_INLINE Values<F, Rows> normal_values(const Values<F, Rows>& v, const Mean& mean, const Scale& scale,
                                            const Bias& bias) {
  const Values<F, Rows> normal = map(
      v, [](auto x, auto m, auto s, auto b) { return (x - m) * s + b; }, mean, scale, bias);
  Lanes<F> none{};
  for (int row = 0; row < Rows; ++row) none += normal.at[row][0] * F(0);  // NaN where one of them is not finite
  if (__builtin_expect(has_nan(none), false)) return normal_by_eager<F>(v, normal, mean, scale, bias);
  return normal;
}

// Folds a formula, or a part of it, over the columns of a block from `at` on.
template <class Chain, class T, int Rows>
struct Evaluation : Arithmetic<typename MathOf<T>::type> {
  using F = Compute<T>;
  using Value = Values<F, Rows>;

  const Block<Chain, T>& block;
  const int at;
  const Value& y;
  const Value& after_norm;

  TAILOR_INLINE Evaluation(const Block<Chain, T>& b, int position, const Value& linear_result)
      : Evaluation(b, position, linear_result, linear_result) {}
  TAILOR_INLINE Evaluation(const Block<Chain, T>& b, int position, const Value& linear_result, const Value& norm_result)
      : block(b), at(position), y(linear_result), after_norm(norm_result) {}

  TAILOR_INLINE Value linear() {
    return map(
        y, [](auto product, auto bias) { return product + bias; }, column(block.linear_bias + at));
  }
  TAILOR_INLINE Value normed() { return after_norm; }
  template <class V>
  TAILOR_INLINE Column<F> vector(V) {
    return column(block.vectors[position_of<Chain, V>] + at);
  }
  template <class S>
  TAILOR_INLINE Lanes<F> scalar(S) {
    return all(block.scalars[position_of<Chain, S>]);
  }
  // What the norm reads.
  TAILOR_INLINE Value before_norm() { return this->rounded(Before<Chain>::fold(*this)); }
  TAILOR_INLINE Value batch_norm(const Value& v) {
    return normalise(this->rounded(v), column(block.mean + at), column(block.scale + at));
  }
  template <class Mean, class Scale>
  TAILOR_INLINE Value normalise(const Value& v, const Mean& mean, const Scale& scale) {
    return normal_values<F>(v, mean, scale, column(block.bias + at));
  }
};

// How many columns of a vector there are: `Whole`, or an int.
struct Whole {};
template <class T, int Rows>
TAILOR_INLINE Values<Compute<T>, Rows> load_rows(const Raw<T>* from, std::int64_t stride, Whole = {}) {
  Values<Compute<T>, Rows> tile;
#pragma GCC unroll 8
  for (int row = 0; row < Rows; ++row) tile.at[row][0] = load<T>(from + row * stride);
  return tile;
}
template <class T, int Rows>
TAILOR_INLINE Values<Compute<T>, Rows> load_rows(const Raw<T>* from, std::int64_t stride, int count) {
  Values<Compute<T>, Rows> tile;
  for (int row = 0; row < Rows; ++row) tile.at[row][0] = load<T>(from + row * stride, count);
  return tile;
}
template <class T, int Rows>
TAILOR_INLINE void store_rows(Raw<T>* to, std::int64_t stride, const Values<Compute<T>, Rows>& tile, Whole = {}) {
#pragma GCC unroll 8
  for (int row = 0; row < Rows; ++row) store<T>(to + row * stride, tile.at[row][0]);
}
template <class T, int Rows>
TAILOR_INLINE void store_rows(Raw<T>* to, std::int64_t stride, const Values<Compute<T>, Rows>& tile, int count) {
  for (int row = 0; row < Rows; ++row) store<T>(to + row * stride, tile.at[row][0], count);
}

template <class F>
TAILOR_INLINE Lanes<F> only(Lanes<F> value, Whole) {
  return value;
}
template <class F>
TAILOR_INLINE Lanes<F> only(Lanes<F> value, int count) {
  return first<F>(value, count);
}

// Of each column, pairwise in a fixed order.
template <int First, int Count, class F, int Rows>
TAILOR_INLINE Lanes<F> sum_of_rows(const Values<F, Rows>& tile) {
  if constexpr (Count == 1)
    return tile.at[First][0];
  else
    return sum_of_rows<First, Count / 2, F>(tile) + sum_of_rows<First + Count / 2, Count / 2, F>(tile);
}

template <class T>
void write(const Compute<T>* from, int count, Raw<T>* to) {
  using F = Compute<T>;
  int i = 0;
  for (; i + lanes<F> <= count; i += lanes<F>) store<T>(to + i, load<F>(from + i));
  if (i < count) store<T>(to + i, load<F>(from + i), count - i);
}

// How many rows are taken for one.
template <class T>
int times_of(const Tail& tail) {
  const int times = rows_in_one(tail.columns, lanes<Compute<T>>, block_width<Compute<T>>);
  return times <= tail.rows ? times : 1;
}

// Calls work(tail, times), where a row of the tail is `times` rows: narrow ones are taken together, the last few alone.
template <class T, class Work>
void in_wide_rows(const Tail& tail, Work work) {
  const int times = times_of<T>(tail);
  std::int64_t done = 0;
  if (times > 1) {
    Tail wide = tail;
    wide.rows = tail.rows / times;
    wide.columns *= times;
    wide.norm.groups *= times;
    work(wide, times);
    done = wide.rows * times;
  }
  Tail rest = tail;
  rest.rows -= done;
  rest.y = raw<T>(tail.y) + done * tail.columns;
  rest.out = static_cast<Raw<T>*>(tail.out) + done * tail.columns;
  if (rest.rows > 0) work(rest, 1);
}

// Calls work(first column, columns, first row, last row) for pieces of rows × columns, on many threads where that pays. The
// columns are cut into blocks of `width`; a piece is a run of rows of one of them, and a thread has `least` elements.
template <class Work>
void for_each_block(const Parallel& parallel, std::int64_t rows, std::int64_t columns, std::int64_t width,
                    std::int64_t least, const Work& work) {
  const auto each = [&](std::int64_t first, std::int64_t last) {
    while (first < last) {
      const std::int64_t block = first / rows;
      const std::int64_t row = first - block * rows;
      const std::int64_t end = last - block * rows < rows ? last - block * rows : rows;
      const std::int64_t left = columns - block * width;
      work(block * width, static_cast<int>(left < width ? left : width), row, end);
      first = block * rows + end;
    }
  };
  const std::int64_t count = ceiling(columns, width) * rows;
  const std::int64_t grain = ceiling(least, columns < width ? columns : width);
  if (count <= grain) return each(0, count);
  using Each = decltype(each);
  parallel.run(
      count, grain,
      [](std::int64_t first, std::int64_t last, void* context) { (*static_cast<const Each*>(context))(first, last); },
      const_cast<void*>(static_cast<const void*>(&each)));
}

// Less than this is hardly worth waking a thread for; torch's own loops draw the line here too.
inline constexpr std::int64_t elements_per_thread = 32768;

}  // namespace tailor::cpu::TAILOR_ISA
