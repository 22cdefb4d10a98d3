// Exchange of numbers between the blocks of a cluster. A block writes into the other blocks' shared
// memory, and each number that arrives counts towards the bytes that the receiver's barrier
// expects. The code is PTX, so that a compiler without CUDA's headers for clusters builds it.
#pragma once

#include <cstdint>

#include "../types.h"

namespace lltm {

#if __CUDA_ARCH__ >= 900

// The 32-bit PTX address of an object in this block's shared memory.
LLTM_DEVICE uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// threadIdx.x in a register. Otherwise the compiler reads it again at each use, which is slow.
LLTM_DEVICE int thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

LLTM_DEVICE int cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

LLTM_DEVICE int cluster_blocks() {
  uint32_t blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return static_cast<int>(blocks);
}

// The address in block `rank` of the cluster that corresponds to `address` in this block.
LLTM_DEVICE uint32_t address_in(uint32_t address, int rank) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}

LLTM_DEVICE void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster."
      "wait.acquire.aligned;" ::
          : "memory");
}

// Makes a barrier for one arrival, that of `expect`, and for the bytes that `expect` names.
LLTM_DEVICE void make_barrier(uint32_t barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

// Makes the barriers visible to the other blocks. Call it before cluster_sync.
LLTM_DEVICE void show_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

LLTM_DEVICE void expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Waits until the barrier's phase of this parity has ended.
LLTM_DEVICE void await(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n\t.reg .pred complete;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, complete;\n\t}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// Both addresses are the receiver's, from address_in.
LLTM_DEVICE void send(uint32_t address, float value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 "
      "[%0], %1, [%2];" ::"r"(address),
      "r"(__float_as_uint(value)), "r"(barrier)
      : "memory");
}

// Barriers of two buffers that are filled alternately, the second one first.
class BufferBarriers {
 public:
  uint32_t flip = static_cast<uint32_t>(-8);  // offset from the next buffer's barrier to the other

  // One thread `arms` the barriers, for `bytes` per turn. cluster_sync must follow.
  LLTM_DEVICE BufferBarriers(const uint64_t (&barriers)[2], int bytes, bool arms)
      : second_(shared_address(barriers) + 8), next_(second_), bytes_(bytes), arms_(arms) {
    if (!arms) return;
    make_barrier(second_ - 8);
    make_barrier(second_);
    expect(second_ - 8, bytes);
    expect(second_, bytes);
    show_barriers();
  }
  LLTM_DEVICE uint32_t second() const { return second_; }

  // Waits for the next buffer.
  LLTM_DEVICE void wait() {
    await(next_, parity_);
    if (arms_) expect(next_, bytes_);
  }
  LLTM_DEVICE void turn() {
    next_ += flip;
    flip = 0u - flip;
    parity_ ^= flip >> 31;  // changes after the first buffer's turn
  }

 private:
  uint32_t second_;
  uint32_t next_;
  uint32_t parity_ = 0;
  int bytes_;
  bool arms_;
};

#endif

}  // namespace lltm
