// What a thread reads of two matrices, row by row, on its way while it computes what came before.
#pragma once
#include "place.cuh"

namespace tailor::cuda {

// To shared memory, where each thread has a place of its own and waits for nobody: registers are few.
template <class T, int Rows, int Width, bool in_shared_memory = sizeof(T) * Width >= 4>
class Ahead {
 public:
  static constexpr int bytes = sizeof(T) * Width;
  // Under way, and the one that is taken. More rounds of one row, as they bring less each.
  static constexpr unsigned rounds = Rows == 1 ? 4 : 2;
  struct Memory {
    Packet<T, Width> at[rounds][2][Rows][most_threads];
  };

  __device__ __forceinline__ Ahead(Memory& shared, const void* a, const void* b, const Marching& start)
      : memory_(shared), from_{static_cast<const T*>(a), static_cast<const T*>(b)}, next_(start) {
#pragma unroll
    for (unsigned i = 0; i + 1 < rounds; ++i) bring_next(i);
  }

  // A round's rows, zero where there are none.
  __device__ __forceinline__ void take(Tile<Compute<T>, Rows, Width>& a, Tile<Compute<T>, Rows, Width>& b) {
    bring_next((taken_ + rounds - 1) % rounds);
    wait_for_groups_but<rounds - 1>();
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      unpack(memory_.at[taken_][0][r][threadIdx.x], a.at[r]);
      unpack(memory_.at[taken_][1][r][threadIdx.x], b.at[r]);
    }
    taken_ = (taken_ + 1) % rounds;
  }

 private:
  __device__ __forceinline__ void bring_next(unsigned to) {
#pragma unroll
    for (int which = 0; which < 2; ++which) {
#pragma unroll
      for (int r = 0; r < Rows; ++r)
        bring<bytes>(address_of(&memory_.at[to][which][r][threadIdx.x]), from_[which] + next_.offset + r * next_.stride,
                     r < next_.left ? bytes : 0);
    }
    close_group();
    next_.advance(Rows);
  }

  Memory& memory_;
  const T* const from_[2];
  Marching next_;
  unsigned taken_ = 0;
};

// Of two bytes there is no such copy: they wait in registers.
template <class T, int Rows, int Width>
class Ahead<T, Rows, Width, false> {
 public:
  struct Memory {};

  __device__ __forceinline__ Ahead(Memory&, const void* a, const void* b, const Marching& start)
      : from_{a, b}, next_(start), a_(a, start), b_(b, start) {}

  __device__ __forceinline__ void take(Tile<Compute<T>, Rows, Width>& a, Tile<Compute<T>, Rows, Width>& b) {
    a = a_.tile();
    b = b_.tile();
    next_.advance(Rows);
    a_ = Fetched<T, Rows, Width>(from_[0], next_);
    b_ = Fetched<T, Rows, Width>(from_[1], next_);
  }

 private:
  const void* const from_[2];
  Marching next_;
  Fetched<T, Rows, Width> a_, b_;
};

}  // namespace tailor::cuda
