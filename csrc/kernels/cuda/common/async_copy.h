// Copies into shared memory, which are asynchronous from compute capability 8.0 on.
#pragma once

#include "torchship/kernels/vectors.h"

namespace lltm {

// Copies 16 bytes to an address in shared memory, or writes zeros there if not `valid`. Does
// nothing before compute capability 8.0.
LLTM_DEVICE void copy_to_shared(uint32_t address, const void* from, bool valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
               "r"(valid ? kVectorBytes : 0)
               : "memory");
#endif
}

// Copies 16 bytes likewise. Before compute capability 8.0 the copy is synchronous.
LLTM_DEVICE void copy_vector(void* to_shared, const void* from, bool valid) {
#if __CUDA_ARCH__ >= 800
  copy_to_shared(static_cast<uint32_t>(__cvta_generic_to_shared(to_shared)), from, valid);
#else
  *static_cast<int4*>(to_shared) = valid ? *static_cast<const int4*>(from) : make_int4(0, 0, 0, 0);
#endif
}

// Copies one element of 4 or 8 bytes likewise.
template <typename T>
LLTM_DEVICE void copy_element(T* to_shared, const T* from, bool valid) {
#if __CUDA_ARCH__ >= 800
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to_shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from),
               "n"(sizeof(T)), "r"(valid ? static_cast<int>(sizeof(T)) : 0)
               : "memory");
#else
  *to_shared = valid ? *from : T{};
#endif
}

// Commits this thread's copies since the last call as one group.
LLTM_DEVICE void end_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most the latest `kPending` groups of this thread are still in flight.
template <int kPending>
LLTM_DEVICE void wait_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

}  // namespace lltm
