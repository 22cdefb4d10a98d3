// Small device functions that the layer's kernels share.
#pragma once

#include "../lltm_kernels.h"
#include "../types.h"
#include "layer_math.h"

namespace lltm {

// Steps of a sequence as strides: an address that moves along costs two additions, one made anew
// from indices a dozen multiplications and more, in a loop where every instruction counts.
struct Walk {
  int64_t first;   // index of the first step's plane
  int64_t stride;  // planes from one step to the next: 1 or -1

  __device__ __forceinline__ static Walk forward(const lltm_layer_sizes& sizes) {
    return sizes.reverse != 0 ? Walk{sizes.steps - 1, -1} : Walk{0, 1};
  }
  __device__ __forceinline__ static Walk backward(const lltm_layer_sizes& sizes) {
    return sizes.reverse != 0 ? Walk{0, 1} : Walk{sizes.steps - 1, -1};
  }
};

template <typename T>
__device__ __forceinline__ float load_or_zero(const T* data, int64_t index, bool valid) {
  return valid && data != nullptr ? widen(data[index]) : 0.0f;
}

__device__ __forceinline__ void prefetch_to_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

__device__ __forceinline__ float shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

}  // namespace lltm
