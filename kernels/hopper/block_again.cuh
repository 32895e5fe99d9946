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
  static constexpr __host__ __device__ int place_of_row(int row) { return row % 8 * 2 + row / 8; }
  static constexpr __host__ __device__ int place_of_column(int column) {
    return rows + column % 8 / 2 * 8 + column / 8 * 2 + column % 2;
  }
};

// What a lane brings of a matrix, step after step: four neighbours in memory, of sixteen rows. Of a row, or of four where the matrix lies
// transposed. `place` says where a row's numbers are in a step.
template <int (&place)(int)>
class LaneAgain {
 public:
  using Packet = Columns<float, 4>;

  // Of the matrix the rows from `first` on, which are those from `first_here` on of a step.
  __device__ __forceinline__ LaneAgain(const FloatMatrix& matrix, int first, int first_here, int inner, int lane)
      : matrix_(matrix),
        own_row_(matrix.transposed ? lane % 4 * 4 : lane / 2),
        own_depth_(matrix.transposed ? lane / 4 : lane % 2 * 4),
        row_(first + own_row_),
        inner_(inner),
        to_(own_depth_ * StepAgain::line + place(first_here + own_row_)),
        step_(matrix.transposed ? StepAgain::depth * matrix.stride : StepAgain::depth),
        next_(matrix.transposed ? matrix.from + own_depth_ * matrix.stride + row_
                                : matrix.from + min(std::int64_t{row_}, matrix.rows - 1) * matrix.stride + own_depth_),
        is_whole_(matrix.transposed ? reinterpret_cast<std::uintptr_t>(next_) % 16 == 0 && matrix.stride % 4 == 0 &&
                                          row_ + 4 <= matrix.rows
                                    : matrix.aligned) {}

  // Each time those of the next step.
  __device__ __forceinline__ Packet bring(int k) {
    if (!is_whole_ || k + StepAgain::depth > inner_) return bring_some(k + own_depth_);
    const float4 all = read_only(reinterpret_cast<const float4*>(next_));
    next_ += step_;
    return reinterpret_cast<const Packet&>(all);
  }

  __device__ __forceinline__ void put(const Packet& packet, StepAgain& step) const {
    float* const to = &step.at[0][0] + to_;
    if (matrix_.transposed) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[place(i) - place(0)] = packet.at[i];
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i * StepAgain::line] = packet.at[i];
    }
  }

 private:
  __device__ __forceinline__ Packet bring_some(int k) const {
    if (!matrix_.transposed) return read_columns<4>(matrix_, row_, k, inner_);
    Packet out = {};
    if (k >= inner_) return out;
    const float* const from = matrix_.from + k * matrix_.stride + row_;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (row_ + i < matrix_.rows) out.at[i] = read_only(from + i);
    return out;
  }

  const FloatMatrix& matrix_;
  const int own_row_, own_depth_, row_, inner_, to_;
  const std::int64_t step_;
  const float* next_;
  const bool is_whole_;
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
      : step_(step),
        x_(x, row, 0, inner, lane),
        w_{{weight, column, 0, inner, lane}, {weight, column + 16, 16, inner, lane}},
        inner_(inner),
        lane_(lane) {}

  // Sums of few products are added up, and what that loses is the next one's beginning: a long sum loses nothing.
  __device__ __forceinline__ void compute(Results& results) {
    Results sums = {};
#pragma unroll
    for (auto& row : results)
#pragma unroll
      for (float& result : row) result = 0;
    Packet x = x_.bring(0);
    OfColumns::Packet w[2] = {w_[0].bring(0), w_[1].bring(0)};
#pragma unroll 1
    for (int k = 0; k < inner_; k += StepAgain::depth) {
      __syncwarp();  // the step before has been read
      x_.put(x, step_);
      w_[0].put(w[0], step_);
      w_[1].put(w[1], step_);
      __syncwarp();
      const int next = k + StepAgain::depth;
      x = x_.bring(next);
      w[0] = w_[0].bring(next);
      w[1] = w_[1].bring(next);
      add_step(sums);
      constexpr int few = 4 * StepAgain::depth;
      if (next % few == 0 || next >= inner_) add_up(results, sums);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int i = 0; i < own_columns; ++i) results[row][i] += sums[row][i];
  }

 private:
  using OfRows = LaneAgain<StepAgain::place_of_row>;
  using OfColumns = LaneAgain<StepAgain::place_of_column>;
  using Packet = OfRows::Packet;

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
  OfRows x_;
  OfColumns w_[2];
  const int inner_, lane_;
};

}  // namespace tailor::hopper
