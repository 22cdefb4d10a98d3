// Small device functions that the layer's kernels share.
#pragma once

#include "../lltm_kernels.h"
#include "../types.h"
#include "layer_math.h"
#include "vectors.h"

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

// The recurrent weights, four neighbouring columns at a time, by one instruction where addresses
// allow it: kernels begin with reading them all, and short sequences wait for that.
template <typename T>
class WeightReader {
 public:
  __device__ __forceinline__ WeightReader(const void* weights, const lltm_layer_sizes& sizes)
      : weights_(static_cast<const T*>(weights)),
        stride_(sizes.weight_stride),
        state_(static_cast<int>(sizes.state_size)),
        aligned_(reinterpret_cast<uintptr_t>(weights) % (4 * sizeof(T)) == 0 && stride_ % 4 == 0) {}

  // From `column`, a multiple of four, on; zeros beyond the state.
  __device__ __forceinline__ void read(int gate, int unit, int column, float (&values)[4]) const {
    const int64_t first = (int64_t{gate} * state_ + unit) * stride_ + column;
    if (aligned_ && unit < state_ && column + 4 <= state_) {
      const auto pack = load_pack<4>(weights_ + first);
#pragma unroll
      for (int i = 0; i < 4; ++i) values[i] = widen(pack.element[i]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        values[i] = load_or_zero(weights_, first + i, unit < state_ && column + i < state_);
      }
    }
  }

 private:
  const T* weights_;
  int64_t stride_;
  int state_;
  bool aligned_;
};

__device__ __forceinline__ void prefetch_to_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

__device__ __forceinline__ float shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

}  // namespace lltm
