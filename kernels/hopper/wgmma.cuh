// The matrix instruction of a warpgroup: a tile of 64 rows of floats in the registers of 128 threads gains the product of two
// blocks in shared memory. A thread holds, of rows lane / 4 and 8 below that, columns 8 j + 2 (lane % 4) and the next.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ptx.cuh"

namespace tailor::hopper {

constexpr int warpgroup_rows = 64;
// What a thread has of so many columns.
template <int columns>
using Accumulator = float[columns / 2];

// A block whose rows are 128 bytes, in the copy engine's 128-byte swizzle: eight rows make an atom of 1024 bytes.
constexpr int row_bytes = 128;
__device__ __forceinline__ std::uint64_t describe_block(Address block) {
  constexpr std::uint64_t swizzled = std::uint64_t{1} << 62;
  constexpr std::uint64_t atom = std::uint64_t{8 * row_bytes >> 4} << 32;
  constexpr std::uint64_t unused = std::uint64_t{1} << 16;
  return static_cast<std::uint64_t>((block & 0x3ffff) >> 4) | unused | atom | swizzled;
}
// A block of pieces of 8 rows × 16 bytes: so many bytes apart where the next eight rows, and the next 16 bytes of a row, lie.
__device__ __forceinline__ std::uint64_t describe_pieces(Address block, int next_rows, int next_bytes) {
  return static_cast<std::uint64_t>((block & 0x3ffff) >> 4) | static_cast<std::uint64_t>(next_bytes >> 4) << 16 |
         static_cast<std::uint64_t>(next_rows >> 4) << 32;
}
// An instruction takes 32 bytes of each row.
constexpr int instruction_bytes = 32;
constexpr std::uint64_t next_instruction = instruction_bytes >> 4;
// Or, of a block whose lines are columns of it, 16 lines.
constexpr std::uint64_t next_lines = 16 * row_bytes >> 4;

#define TAILOR_TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define TAILOR_SIXTY TAILOR_TEN() TAILOR_TEN(1) TAILOR_TEN(2) TAILOR_TEN(3) TAILOR_TEN(4) TAILOR_TEN(5)
#define TAILOR_120 TAILOR_SIXTY TAILOR_TEN(6) TAILOR_TEN(7) TAILOR_TEN(8) TAILOR_TEN(9) TAILOR_TEN(10) TAILOR_TEN(11)
#define TAILOR_FOUR(i) "+f"(sum[i]), "+f"(sum[(i) + 1]), "+f"(sum[(i) + 2]), "+f"(sum[(i) + 3])
#define TAILOR_SIXTEEN(i) TAILOR_FOUR(i), TAILOR_FOUR((i) + 4), TAILOR_FOUR((i) + 8), TAILOR_FOUR((i) + 12)
#define TAILOR_64(i) TAILOR_SIXTEEN(i), TAILOR_SIXTEEN((i) + 16), TAILOR_SIXTEEN((i) + 32), TAILOR_SIXTEEN((i) + 48)

// The sums of so many columns: the registers' numbers, those of what comes after them, and the sums themselves.
#define TAILOR_SUMS_32 TAILOR_TEN() "%10,%11,%12,%13,%14,%15"
#define TAILOR_SUMS_64 TAILOR_TEN() TAILOR_TEN(1) TAILOR_TEN(2) "%30,%31"
#define TAILOR_SUMS_128 TAILOR_SIXTY "%60,%61,%62,%63"
#define TAILOR_SUMS_192 TAILOR_SIXTY TAILOR_TEN(6) TAILOR_TEN(7) TAILOR_TEN(8) "%90,%91,%92,%93,%94,%95"
#define TAILOR_SUMS_256 TAILOR_120 "%120,%121,%122,%123,%124,%125,%126,%127"

#define TAILOR_WGMMA(columns, types, more, a_at, b_at, add_at, ...)                                                  \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #add_at ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns types \
               " {" TAILOR_SUMS_##columns "}, %" #a_at ", %" #b_at ", p, 1, 1" more ";\n}"                           \
               : __VA_ARGS__                                                                                         \
               : "l"(a), "l"(b), "r"(static_cast<int>(add)))
#define TAILOR_WGMMA_OF(types, more)                                                                  \
  if constexpr (columns == 32)                                                                        \
    TAILOR_WGMMA(32, types, more, 16, 17, 18, TAILOR_SIXTEEN(0));                                     \
  else if constexpr (columns == 64)                                                                   \
    TAILOR_WGMMA(64, types, more, 32, 33, 34, TAILOR_SIXTEEN(0), TAILOR_SIXTEEN(16));                 \
  else if constexpr (columns == 128)                                                                  \
    TAILOR_WGMMA(128, types, more, 64, 65, 66, TAILOR_64(0));                                         \
  else if constexpr (columns == 192)                                                                  \
    TAILOR_WGMMA(192, types, more, 96, 97, 98, TAILOR_64(0), TAILOR_SIXTEEN(64), TAILOR_SIXTEEN(80)); \
  else if constexpr (columns == 256)                                                                  \
    TAILOR_WGMMA(256, types, more, 128, 129, 130, TAILOR_64(0), TAILOR_64(64));                       \
  else                                                                                                \
    static_assert(columns == 0, "there is no such instruction here")

// sum = a · bᵀ, or with `add` sum + a · bᵀ, for so many columns. Asynchronous.
template <int columns>
__device__ __forceinline__ void multiply(Accumulator<columns>& sum, std::uint64_t a, std::uint64_t b, bool add,
                                         __nv_bfloat16) {
  TAILOR_WGMMA_OF("k16.f32.bf16.bf16", ", 0, 0");
}
// `a_lies`: the first block is described as it lies, lines of 64 of its rows.
template <int columns, bool a_lies = false>
__device__ __forceinline__ void multiply(Accumulator<columns>& sum, std::uint64_t a, std::uint64_t b, bool add,
                                         __half) {
  if constexpr (a_lies) {
    TAILOR_WGMMA_OF("k16.f32.f16.f16", ", 1, 0");
  } else {
    TAILOR_WGMMA_OF("k16.f32.f16.f16", ", 0, 0");
  }
}
template <int columns>
__device__ __forceinline__ void multiply(Accumulator<columns>& sum, std::uint64_t a, std::uint64_t b, bool add, float) {
  TAILOR_WGMMA_OF("k8.f32.tf32.tf32", "");
}

// The same with the first operand in registers: a thread has, of its two rows, pairs of neighbours in each eight of 16 numbers of
// K.
#define TAILOR_WGMMA_OF_REGISTERS(columns, operands, b, add, ...)                                           \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #add ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns \
               "k16.f32.bf16.bf16 {" TAILOR_SUMS_##columns "}, {" operands "}, %" #b ", p, 1, 1, 0;\n}"     \
               : __VA_ARGS__                                                                                \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(block), "r"(static_cast<int>(more)))
template <int columns>
__device__ __forceinline__ void multiply(Accumulator<columns>& sum, const std::uint32_t (&a)[4], std::uint64_t block,
                                         bool more) {
  if constexpr (columns == 32)
    TAILOR_WGMMA_OF_REGISTERS(32, "%16,%17,%18,%19", 20, 21, TAILOR_SIXTEEN(0));
  else if constexpr (columns == 64)
    TAILOR_WGMMA_OF_REGISTERS(64, "%32,%33,%34,%35", 36, 37, TAILOR_SIXTEEN(0), TAILOR_SIXTEEN(16));
  else if constexpr (columns == 128)
    TAILOR_WGMMA_OF_REGISTERS(128, "%64,%65,%66,%67", 68, 69, TAILOR_64(0));
  else
    static_assert(columns == 0, "there is no such instruction here");
}

#undef TAILOR_WGMMA_OF_REGISTERS
#undef TAILOR_WGMMA_OF
#undef TAILOR_WGMMA
#undef TAILOR_SUMS_256
#undef TAILOR_SUMS_192
#undef TAILOR_SUMS_128
#undef TAILOR_SUMS_64
#undef TAILOR_SUMS_32
#undef TAILOR_64
#undef TAILOR_SIXTEEN
#undef TAILOR_FOUR
#undef TAILOR_120
#undef TAILOR_SIXTY
#undef TAILOR_TEN

}  // namespace tailor::hopper
