// Joins [old_h, input], by blocks of the backward launch that own no strip of gates.
#pragma once

#include "../../engine/kernels/vectors.h"
#include "launch.h"

namespace lltm {

constexpr int kJoinPacks = 32;  // of a row, that a block takes: a warp reads 512 bytes in one go
constexpr int kJoinRows = 64;   // that a block takes

template <typename T>
__host__ __device__ bool joins_vectors(const lltm_step_backward_arguments& a) {
  return a.sizes.state_size % kVectorSize<T> == 0 && a.sizes.input_size % kVectorSize<T> == 0 &&
         aligned_for_vectors(a.old_h, a.input, a.joined);
}

template <typename T>
int64_t join_strips(const lltm_step_backward_arguments& a) {
  if (a.joined == nullptr) return 0;
  const int64_t packs =
      (a.sizes.state_size + a.sizes.input_size) / (joins_vectors<T>(a) ? kVectorSize<T> : 1);
  return divide_up(packs, kJoinPacks);
}

template <typename T, int N>
LLTM_DEVICE void join_packs(const lltm_step_backward_arguments& a, int64_t strip, int64_t begin,
                            int64_t end) {
  constexpr int kAtOnce = 4;  // rows of a thread, read before any of them is written
  constexpr int kRows = PlaneGeometry::kThreads / kJoinPacks;
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
  const int64_t columns = a.sizes.state_size + a.sizes.input_size;
  const int64_t column = (strip * kJoinPacks + thread % kJoinPacks) * N;
  if (column >= columns) return;
  const bool of_h = column < a.sizes.state_size;
  const int64_t from_stride = of_h ? a.sizes.state_size : a.sizes.input_size;
  const int64_t first = begin + thread / kJoinPacks;
  const T* from = (of_h ? static_cast<const T*>(a.old_h) + column
                        : static_cast<const T*>(a.input) + (column - a.sizes.state_size)) +
                  first * from_stride;
  T* to = static_cast<T*>(a.joined) + column + first * columns;
  int64_t left = divide_up(end - first, kRows);  // rows of this thread
#pragma unroll 1
  for (; left > 0; left -= kAtOnce) {
    Pack<T, N> packs[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i < left) packs[i] = load_pack<N>(from);
      from += kRows * from_stride;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i < left) store_pack(to, packs[i]);
      to += kRows * columns;
    }
  }
}

// Joins the part of [old_h, input] that belongs to block `index` of the `blocks` joining blocks.
template <typename T>
LLTM_DEVICE void join_columns(const lltm_step_backward_arguments& a, int64_t strips, int64_t index,
                              int64_t blocks) {
  const int64_t parts = blocks / strips * gridDim.y;
  const int64_t rows = divide_up(a.sizes.batch_size, parts);
  const int64_t begin = (index / strips * gridDim.y + blockIdx.y) * rows;
  const int64_t end = begin + rows < a.sizes.batch_size ? begin + rows : a.sizes.batch_size;
  if (joins_vectors<T>(a)) {
    join_packs<T, kVectorSize<T>>(a, index % strips, begin, end);
  } else {
    join_packs<T, 1>(a, index % strips, begin, end);
  }
}

}  // namespace lltm
