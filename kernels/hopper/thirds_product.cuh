// The matrix instructions of a step of thirds: 64 rows of the weight, in registers, by a tile of x in shared memory. Eight numbers
// of K of a tile are its rows' first thirds, their second and their third ones, one below another.
#pragma once
#include "wgmma.cuh"

namespace tailor::hopper {

using ThirdsOfWeight = std::uint32_t[3][4];

// What the tensor cores add up is cut off where it is less than the last digit of the largest number. So the small products come
// first, and where there are registers for it, each 16 numbers of K have sums of their own.
template <int tile_rows>
struct ProductsOfThirds {
  static constexpr int next_eight = 3 * 16 * tile_rows;  // bytes
  static constexpr int sums = tile_rows / 2;             // of a thread
  static constexpr bool apart = tile_rows <= 64;
  float of[apart ? 2 : 1][sums];

  // A step's, whose x is at `x`.
  __device__ __forceinline__ void multiply_all(const ThirdsOfWeight (&w)[2], Address x) {
    const auto third_of_x = [&](int third, int i) {
      return describe_pieces(x + 2 * i * next_eight + third * 16 * tile_rows, 8 * 16, next_eight);
    };
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      auto& to = of[apart ? i : 0];
      multiply<tile_rows>(to, w[i][2], third_of_x(0, i), !apart && i > 0);
      multiply<tile_rows>(to, w[i][1], third_of_x(1, i), true);
      multiply<tile_rows>(to, w[i][0], third_of_x(2, i), true);
      multiply<tile_rows>(to, w[i][1], third_of_x(0, i), true);
      multiply<tile_rows>(to, w[i][0], third_of_x(1, i), true);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) multiply<tile_rows>(of[apart ? i : 0], w[i][0], third_of_x(0, i), true);
  }
  __device__ __forceinline__ void add_to(float (&all)[sums]) const {
#pragma unroll
    for (int i = 0; i < sums; ++i) all[i] += apart ? of[0][i] + of[1][i] : of[0][i];
  }
};

}  // namespace tailor::hopper
