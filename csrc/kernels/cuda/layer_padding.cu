// Copies into and out of tensors that are padded with zeros, all of a call in one launch.
#include <algorithm>

#include "../dispatch.h"
#include "launch.h"
#include "layer.h"

namespace lltm {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kAtOnce = 8;  // elements that a lane has on their way

struct Copies {
  lltm_copy at[LLTM_MOST_COPIES];
};

// Each warp takes rows of the copy blockIdx.y.
template <typename T>
__global__ void __launch_bounds__(kThreads) copy_rows(const Copies copies) {
  const lltm_copy copy = copies.at[blockIdx.y];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t rows = copy.planes * copy.to_rows;
  constexpr int64_t kWarps = kThreads / kWarp;
  for (int64_t to_row = blockIdx.x * kWarps + threadIdx.x / kWarp; to_row < rows;
       to_row += gridDim.x * kWarps) {
    const int64_t row = to_row % copy.to_rows;
    const int64_t from_row = to_row / copy.to_rows * copy.from_rows + row;
    const T* const from = static_cast<const T*>(copy.from) + from_row * copy.from_stride;
    T* const to = static_cast<T*>(copy.to) + to_row * copy.to_stride;
    const int64_t columns = row < copy.from_rows ? copy.from_columns : 0;
    for (int64_t first = lane; first < copy.to_columns; first += kAtOnce * kWarp) {
      T values[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int64_t column = first + i * kWarp;
        values[i] = column < columns ? from[column] : T{};
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int64_t column = first + i * kWarp;
        if (column < copy.to_columns) to[column] = values[i];
      }
    }
  }
}

}  // namespace

const char* cuda_copy(lltm_dtype dtype, int32_t count, const lltm_copy* copies,
                      const lltm_execution* execution) {
  return dispatch_dtype(dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const DeviceScope device(execution->device_index);
    if (device.error() != cudaSuccess) return error_text("copy", device.error());
    Copies all = {};
    std::copy_n(copies, count, all.at);
    int64_t rows = 1;
    for (int32_t i = 0; i < count; ++i) rows = std::max(rows, copies[i].planes * copies[i].to_rows);
    constexpr int64_t kMostBlocks = 1024;  // for each copy; warps stride over more rows
    const int64_t blocks = std::min(divide_up(rows, kThreads / kWarp), kMostBlocks);
    copy_rows<T><<<dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(count)), kThreads, 0,
                   static_cast<cudaStream_t>(execution->stream)>>>(all);
    return error_text("copy", cudaGetLastError());
  });
}

}  // namespace lltm
