// What kernels need that make copies: a kernel of its own, or one that has blocks to spare.
#pragma once

#include "copies.h"
#include "launch.h"
#include "unrolled.h"

namespace lltm {

// Of every block that copies.
constexpr int kCopyThreads = 256;
constexpr int64_t kMostCopyBlocks = 1024;  // for one copy; enough to fill a GPU
constexpr int kCopyWarp = 32;
constexpr int kCopyWarps = kCopyThreads / kCopyWarp;  // per block
constexpr int kCopyAtOnce = 8;                        // elements that a lane reads before it writes
constexpr int kCopyColumns = kCopyAtOnce * kCopyWarp;

// The number of blocks that make a copy. A warp waits for memory once for each kCopyColumns columns
// of a row, so it gets at most twice as many, unless the copy fills the device.
constexpr __host__ __device__ unsigned copy_blocks(const lltm_copy& copy) {
  const int64_t warps = copy.planes * copy.to_rows * divide_up(copy.to_columns, 2 * kCopyColumns);
  const int64_t blocks = divide_up(warps, kCopyWarps);
  return static_cast<unsigned>(blocks < kMostCopyBlocks ? blocks : kMostCopyBlocks);
}

inline int64_t copy_blocks(const Copies& copies) {
  int64_t blocks = 0;
  for (int i = 0; i < copies.count; ++i) blocks += copy_blocks(copies.at[i]);
  return blocks;
}

// Makes part `block` of `blocks` parts of a copy. Several warps share a row if there are enough.
template <typename T>
LLTM_DEVICE void copy_rows(const lltm_copy& copy, unsigned block, unsigned blocks) {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  const unsigned lane = thread % kCopyWarp;
  const unsigned warp = block * kCopyWarps + thread / kCopyWarp;
  const unsigned warps = blocks * kCopyWarps;
  const int64_t rows = copy.planes * copy.to_rows;
  const unsigned sharing = rows < warps ? warps / static_cast<unsigned>(rows) : 1;
  const unsigned at_once = warps / sharing;  // rows
  if (warp >= at_once * sharing) return;
  for (int64_t to_row = warp / sharing; to_row < rows; to_row += at_once) {
    const int64_t plane = copy.planes == 1 ? 0 : to_row / copy.to_rows;  // a division takes long
    const int64_t row = to_row - plane * copy.to_rows;
    const T* const from =
        static_cast<const T*>(copy.from) + (plane * copy.from_rows + row) * copy.from_stride;
    T* const to = static_cast<T*>(copy.to) + to_row * copy.to_stride;
    const int64_t columns = row < copy.from_rows ? copy.from_columns : 0;
    for (int64_t first = warp % sharing * kCopyColumns + lane; first < copy.to_columns;
         first += sharing * kCopyColumns) {
      T values[kCopyAtOnce];
      unrolled<kCopyAtOnce>([&](int i) {
        const int64_t column = first + i * kCopyWarp;
        values[i] = column < columns ? from[column] : T{};
      });
      unrolled<kCopyAtOnce>([&](int i) {
        const int64_t column = first + i * kCopyWarp;
        if (column < copy.to_columns) to[column] = values[i];
      });
    }
  }
}

// Makes part `block` of all copies.
template <typename T>
LLTM_DEVICE void copy_part(const Copies& copies, unsigned block) {
  for (int i = 0; i < copies.count; ++i) {
    const unsigned blocks = copy_blocks(copies.at[i]);
    if (block < blocks) return copy_rows<T>(copies.at[i], block, blocks);
    block -= blocks;
  }
}

}  // namespace lltm
