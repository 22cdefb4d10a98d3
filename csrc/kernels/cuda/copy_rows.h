// Copies of matrices whose rows have gaps, padded with zeros. Several blocks make one lltm_copy.
#pragma once

#include "../types.h"
#include "launch.h"
#include "unrolled.h"

namespace lltm {

constexpr int kCopyThreads = 256;
constexpr int kCopyWarp = 32;
constexpr int64_t kCopyRows = kCopyThreads / kCopyWarp;  // rows per block at a time

// Makes part `block` of `blocks` parts of a copy. Each warp takes whole rows.
template <typename T>
LLTM_DEVICE void copy_rows(const lltm_copy& copy, int thread, int64_t block, int64_t blocks) {
  constexpr int kAtOnce = 8;  // per lane in flight
  const int lane = thread % kCopyWarp;
  const int64_t rows = copy.planes * copy.to_rows;
  for (int64_t to_row = block * kCopyRows + thread / kCopyWarp; to_row < rows;
       to_row += blocks * kCopyRows) {
    const int64_t row = to_row % copy.to_rows;
    const int64_t from_row = to_row / copy.to_rows * copy.from_rows + row;
    const T* const from = static_cast<const T*>(copy.from) + from_row * copy.from_stride;
    T* const to = static_cast<T*>(copy.to) + to_row * copy.to_stride;
    const int64_t columns = row < copy.from_rows ? copy.from_columns : 0;
    for (int64_t first = lane; first < copy.to_columns; first += kAtOnce * kCopyWarp) {
      T values[kAtOnce];
      unrolled<kAtOnce>([&](int i) {
        const int64_t column = first + i * kCopyWarp;
        values[i] = column < columns ? from[column] : T{};
      });
      unrolled<kAtOnce>([&](int i) {
        const int64_t column = first + i * kCopyWarp;
        if (column < copy.to_columns) to[column] = values[i];
      });
    }
  }
}

// The number of blocks for a copy; warps stride over further rows.
inline int64_t copy_blocks(const lltm_copy& copy) {
  constexpr int64_t kMostBlocks = 1024;
  const int64_t blocks = divide_up(copy.planes * copy.to_rows, kCopyRows);
  return blocks < kMostBlocks ? blocks : kMostBlocks;
}

}  // namespace lltm
