// Helpers for CUDA kernels over the rows of a matrix. A block works on one row at a time, and each
// thread keeps its part of the row in registers, in packs of 16 bytes. A row that does not fit in
// the registers is read again for each use. An unaligned row is also read again, one element at a
// time.
#pragma once

#include "cuda.h"
#include "vectors.h"

namespace PROJECT_NAMESPACE {

constexpr int kMostRowThreads = 512;

// How a block divides a row. A pack has `size` elements. A thread keeps `packs` packs in registers,
// or reads the row again for each use if `packs` is 0.
template <int size, int packs>
struct RowShape {
  static constexpr int kSize = size;
  static constexpr int kPacks = packs;
  unsigned threads;
};

// Calls `launch` with the RowShape for rows of `columns` elements. `aligned` is the result of
// aligned_for_vectors. Returns NULL, or an error text that names `kernel`.
template <typename T, typename Launch>
const char* launch_rows(const char* kernel, int64_t columns, bool aligned, const Launch& launch) {
  constexpr int kSize = kVectorSize<T>, kPacks = 4;
  const auto warps = [](int64_t count) {
    return static_cast<unsigned>(count < kMostRowThreads ? (count + 31) / 32 * 32
                                                         : kMostRowThreads);
  };
  if (!aligned || columns % kSize != 0) {
    launch(RowShape<1, 0>{warps(columns)});
  } else if (columns <= kSize * kPacks * kMostRowThreads) {
    launch(RowShape<kSize, kPacks>{warps((columns / kSize + kPacks - 1) / kPacks)});
  } else {
    launch(RowShape<kSize, 0>{kMostRowThreads});
  }
  return error_text(kernel, cudaGetLastError());
}

// Calls work(k, column) for each pack of this thread. Pack k begins at `column`; if kPacks is 0, k
// is always 0.
template <int kSize, int kPacks, typename Work>
__device__ void for_packs(int64_t columns, const Work& work) {
  const int64_t step = static_cast<int64_t>(blockDim.x) * kSize;
  int64_t column = static_cast<int64_t>(threadIdx.x) * kSize;
  if constexpr (kPacks == 0) {
    for (; column < columns; column += step) work(0, column);
  } else {
#pragma unroll
    for (int k = 0; k < kPacks; ++k, column += step) {
      if (column < columns) work(k, column);
    }
  }
}

// This thread's part of a row.
template <typename T, int kSize, int kPacks>
class Row {
 public:
  __device__ void open(const T* data, int64_t columns) {
    from_ = data;
    if constexpr (kPacks > 0) {
      for_packs<kSize, kPacks>(
          columns, [&](int k, int64_t column) { kept_[k] = load_pack<kSize>(data + column); });
    }
  }
  __device__ Pack<T, kSize> at(int k, int64_t column) const {
    return kPacks > 0 ? kept_[k] : load_pack<kSize>(from_ + column);
  }

 private:
  const T* from_;
  Pack<T, kSize> kept_[kPacks > 0 ? kPacks : 1];
};

// Returns the sum of all threads' values to every thread of the block. The order of additions is
// fixed.
template <typename Compute>
__device__ Compute block_sum(Compute value) {
  __shared__ Compute parts[kMostRowThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  __syncthreads();  // wait until all threads have read an earlier sum's parts
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) value += parts[warp];
  return value;
}

}  // namespace PROJECT_NAMESPACE
