// Many results computed again: a warp's 16 rows by 32 columns, of which each thread has those that it has of the tensor cores' products.
// Where a whole product has to be, it takes some times as long as SGEMM, however the matrices lie.
#pragma once
#include "again.cuh"

namespace tailor::hopper {

// What a warp multiplies next.
struct alignas(16) StepAgain {
  static constexpr int rows = 16, columns = 32, depth = 8;
  static constexpr int line = rows + columns + 4;  // so that fewer lanes that write meet in a bank
  float at[depth][line];

  // A thread's two rows are side by side, and its four pairs of columns.
  static __device__ __forceinline__ int place_of_row(int row) { return row % 8 * 2 + row / 8; }
  static __device__ __forceinline__ int place_of_column(int column) {
    return rows + column % 8 / 2 * 8 + column / 8 * 2 + column % 2;
  }
};

class BlockAgain {
 public:
  static constexpr int own_columns = StepAgain::columns / 4;
  using Results =
      float[2][own_columns];  // a thread's: of two rows, eight apart, a pair of neighbours in each eight columns

  // A bit for each of a thread's results that is wanted. One by one so many take as long as all at once; or few, where memory brings eight
  // numbers to read one.
  static __device__ __forceinline__ bool is_worth_it(std::uint32_t wanted, const FloatMatrix& x,
                                                     const FloatMatrix& weight) {
    const unsigned as_long = x.transposed || weight.transposed ? 2 : 32;
    return __reduce_add_sync(~0u, static_cast<unsigned>(__popc(wanted))) > as_long;
  }

  __device__ __forceinline__ BlockAgain(StepAgain& step, const FloatMatrix& x, int row, const FloatMatrix& weight,
                                        int column, int inner, int lane)
      : step_(step), x_(x), weight_(weight), row_(row), column_(column), inner_(inner), lane_(lane) {}

  // Sums of few products are added up, and what that loses is the next one's beginning: a long sum loses nothing.
  __device__ __forceinline__ void compute(Results& results) const {
    Results sums = {};
#pragma unroll
    for (auto& row : results)
#pragma unroll
      for (float& result : row) result = 0;
    Packet x = bring(x_, row_, 0);
    Packet w[2] = {bring(weight_, column_, 0), bring(weight_, column_ + 16, 0)};
#pragma unroll 1
    for (int k = 0; k < inner_; k += StepAgain::depth) {
      __syncwarp();  // the step before has been read
      put(x, x_.transposed, [](int row) { return StepAgain::place_of_row(row); });
      put(w[0], weight_.transposed, [](int column) { return StepAgain::place_of_column(column); });
      put(w[1], weight_.transposed, [](int column) { return StepAgain::place_of_column(column + 16); });
      __syncwarp();
      const int next = k + StepAgain::depth;
      x = bring(x_, row_, next);
      w[0] = bring(weight_, column_, next);
      w[1] = bring(weight_, column_ + 16, next);
      add_step(sums);
      constexpr int few = 2 * StepAgain::depth;
      if (next % few == 0 || next >= inner_) add_up(results, sums);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int i = 0; i < own_columns; ++i) results[row][i] += sums[row][i];
  }

 private:
  using Packet = Columns<float, 4>;  // neighbours in memory, of sixteen rows

  // Where a lane's packet begins: of a row, or of four where the matrix lies transposed.
  __device__ __forceinline__ int own_row(bool transposed) const { return transposed ? lane_ % 4 * 4 : lane_ / 2; }
  __device__ __forceinline__ int own_depth(bool transposed) const { return transposed ? lane_ / 4 : lane_ % 2 * 4; }

  __device__ __forceinline__ Packet bring(const FloatMatrix& matrix, int first, int k) const {
    const int row = first + own_row(matrix.transposed);
    k += own_depth(matrix.transposed);
    if (!matrix.transposed) return read_columns<4>(matrix, row, k, inner_);
    Packet out = {};
    if (k >= inner_) return out;
    const float* const from = matrix.from + k * matrix.stride + row;
    if (reinterpret_cast<std::uintptr_t>(from) % 16 == 0 && row + 4 <= matrix.rows) {
      const float4 all = read_only(reinterpret_cast<const float4*>(from));
      return reinterpret_cast<const Packet&>(all);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (row + i < matrix.rows) out.at[i] = read_only(from + i);
    return out;
  }

  template <class Place>
  __device__ __forceinline__ void put(const Packet& packet, bool transposed, Place place) const {
    const int row = own_row(transposed);
    const int depth = own_depth(transposed);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      step_.at[transposed ? depth : depth + i][place(transposed ? row + i : row)] = packet.at[i];
  }

  __device__ __forceinline__ void add_step(Results& sums) const {
#pragma unroll
    for (const auto& line : step_.at) {
      const float2 x = *reinterpret_cast<const float2*>(line + lane_ / 4 * 2);
      const auto* const own = reinterpret_cast<const float4*>(line + StepAgain::rows + lane_ % 4 * 8);
      const float4 w[2] = {own[0], own[1]};
      const auto& columns = reinterpret_cast<const float(&)[own_columns]>(w);
#pragma unroll
      for (int i = 0; i < own_columns; ++i) {
        sums[0][i] = fmaf(x.x, columns[i], sums[0][i]);
        sums[1][i] = fmaf(x.y, columns[i], sums[1][i]);
      }
    }
  }

  // What is left in `sums` is what float32 cannot add, exactly; nothing beside infinity and NaN.
  __device__ __forceinline__ void add_up(Results& results, Results& sums) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
#pragma unroll
      for (int i = 0; i < own_columns; ++i) {
        const float before = results[row][i];
        const float more = sums[row][i];
        const float sum = before + more;
        const float added = sum - before;
        const float left = (before - (sum - added)) + (more - added);
        results[row][i] = sum;
        sums[row][i] = fabsf(left) < INFINITY ? left : 0;
      }
    }
  }

  StepAgain& step_;
  const FloatMatrix& x_;
  const FloatMatrix& weight_;
  const int row_, column_, inner_, lane_;
};

}  // namespace tailor::hopper
