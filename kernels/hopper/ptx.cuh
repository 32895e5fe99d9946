// Hopper's own instructions, one wrapper each.
#pragma once
#include <cuda.h>

#include <cstdint>

#include "../cuda/memory.cuh"

namespace tailor::hopper {

using cuda::Address;
using cuda::address_of;

// --- barriers in shared memory: they count arrivals and bytes, and change their phase when both are complete ---

__device__ __forceinline__ void init_barrier(Address barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void publish_barriers() {  // to the other block of the cluster, and to the copy engine
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(Address barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive_and_expect(Address barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// At the same barrier of another block of the cluster. With .release.cluster it would be a fence of the whole GPU, in the
// main loop; what it has to order are reads of wgmma, which are complete.
__device__ __forceinline__ void arrive_at(Address barrier, int block) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, "
      "[there];\n}" ::"r"(barrier),
      "r"(block)
      : "memory");
}
__device__ __forceinline__ bool passes_soon(Address barrier, std::uint32_t parity) {  // waits for a while
  std::uint32_t passed;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(passed)
               : "r"(barrier), "r"(parity)
               : "memory");
  return passed != 0;
}
__device__ __forceinline__ void wait(Address barrier, std::uint32_t parity) {
  while (!passes_soon(barrier, parity)) {
  }
}
// The same in a main loop: the first try by itself, beside which the compiler works out what the products need. Else it may make one loop
// of this one and the main loop, and work that out once the wait is over.
__device__ __forceinline__ void wait_before_products(Address barrier, std::uint32_t parity) {
  if (!passes_soon(barrier, parity)) wait(barrier, parity);
}

// --- a warp ---

// What all lanes have, so that the compiler sees that they do.
__device__ __forceinline__ int uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

// The same number. What follows from it is worked out anew where it is needed, and takes no registers from one time to the next.
__device__ __forceinline__ int anew(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// --- the cluster ---

__device__ __forceinline__ int rank_in_cluster() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
__device__ __forceinline__ int blocks_in_cluster() {
  std::uint32_t count;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  return static_cast<int>(count);
}
// Before a block leaves whose shared memory others read. Orders nothing: what they read they must have used by then.
__device__ __forceinline__ void meet_to_leave() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// What each has written to its own shared memory all may read from then on. By itself a barrier also waits until all other writes have
// reached the second cache.
__device__ __forceinline__ void meet_cluster() {
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8)
  asm volatile(
      "fence.release.sync_restrict::shared::cta.cluster;\nbarrier.cluster.arrive.relaxed.aligned;\n"
      "barrier.cluster.wait.aligned;" ::
          : "memory");
#else
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// To shared memory without a register on the way: a number, or up to four; zeros for those that are not there.
__device__ __forceinline__ void bring_number(Address to, const float* from, bool is_there) {
  cuda::bring<4>(to, from, is_there ? 4 : 0);
}
__device__ __forceinline__ void bring_four(Address to, const float* from, int there) {
  cuda::bring<16>(to, from, there * 4);
}
__device__ __forceinline__ void wait_for_numbers() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Two neighbours in another block's shared memory, at the address where this one has its own.
__device__ __forceinline__ float2 read_pair_of(int block, Address at) {
  float2 value;
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %2, %3;\nld.shared::cluster.v2.f32 {%0, %1}, [there];\n}"
      : "=f"(value.x), "=f"(value.y)
      : "r"(at), "r"(block)
      : "memory");
  return value;
}

// --- the whole GPU: memory that other blocks write to meanwhile, eight bytes at a time ---

__device__ __forceinline__ void tell_gpu(std::uint64_t* to, std::uint64_t value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
__device__ __forceinline__ std::uint64_t ask_gpu(const std::uint64_t* from) {
  std::uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

// What is added tells of what the warp has written before, and what is asked for, of what those have who added.
__device__ __forceinline__ void add_for_gpu(std::uint32_t* to, std::uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ int ask_gpu_for(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return static_cast<int>(value);
}
// Between what threads write or know to be written to global memory and a copy engine that reads it.
__device__ __forceinline__ void show_gpu_to_copy_engines() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
__device__ __forceinline__ void bring_into_second_cache(const void* from, int bytes) {  // in sixteens
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// --- the copy engine: boxes of a matrix, to and from shared memory ---

// What becomes of fetched lines in the second cache: they are the first to be given up, or wait for their turn.
__device__ __forceinline__ std::uint64_t keep_lines(bool in_passing) {
  std::uint64_t policy;
  if (in_passing)
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  else
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void fetch_box(const CUtensorMap& map, Address to, Address barrier, int column, int row,
                                          std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, "
      "%4}], [%2], %5;" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(column), "r"(row), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void fetch_box(const CUtensorMap& map, Address to, Address barrier, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(to),
      "l"(&map), "r"(barrier), "r"(column), "r"(row)
      : "memory");
}
// To the same place of every block of the cluster that is in `blocks`; each one's barrier hears of it.
__device__ __forceinline__ void fetch_box_for(const CUtensorMap& map, Address to, Address barrier, int column, int row,
                                              std::uint64_t policy, std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_"
      "hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(column), "r"(row), "h"(blocks), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void store_box(const CUtensorMap& map, Address from, int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
               "r"(from), "r"(column), "r"(row)
               : "memory");
}
__device__ __forceinline__ void close_group_of_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int groups>
__device__ __forceinline__ void wait_until_read() {  // all but the last `groups` have read shared memory
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(groups) : "memory");
}
__device__ __forceinline__ void wait_for_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
__device__ __forceinline__ void show_to_copy_engine() {  // what this thread has written to shared memory
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// So many bytes that lie one after another, in sixteens.
__device__ __forceinline__ void fetch_bytes(const void* from, Address to, Address barrier, int bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// --- memory that nobody writes to meanwhile ---

// The toolkit has functions for these, but not every release of it has them whole. Volatile: moved up, the loads of a whole loop
// would take more registers than there are.

__device__ __forceinline__ float read_only(const float* from) {
  float value;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(from));
  return value;
}
__device__ __forceinline__ float2 read_only(const float2* from) {
  float2 value;
  asm volatile("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "l"(from));
  return value;
}
__device__ __forceinline__ float4 read_only(const float4* from) {
  float4 value;
  asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(from));
  return value;
}

// --- matrices and registers ---

__device__ __forceinline__ float4 load_four(Address from) {
  float4 value;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(from)
               : "memory");
  return value;
}
// Arrives at a barrier of some of a block's threads, and waits for the others.
template <int which>
__device__ __forceinline__ void meet(int threads) {
  asm volatile("bar.sync %0, %1;" ::"n"(which), "r"(threads) : "memory");
}

// Four matrices of 8 × 8 halves; a lane brings the address of one row.
__device__ __forceinline__ void store_matrices(Address row, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                               std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}
__device__ __forceinline__ void store_pair(Address to, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(a), "f"(b) : "memory");
}
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void close_group_of_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int groups>
__device__ __forceinline__ void wait_for_products() {  // all but the last `groups`
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}
// By all warps of a warpgroup.
template <int registers>
__device__ __forceinline__ void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

}  // namespace tailor::hopper
