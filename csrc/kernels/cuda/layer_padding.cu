// Copies into and out of tensors that are padded with zeros, all copies of a call in one launch.
#include <algorithm>

#include "../dispatch.h"
#include "copy_rows.h"
#include "layer.h"

namespace lltm {
inline namespace layer_padding_cu {

struct Copies {
  lltm_copy at[LLTM_MOST_COPIES];
};

template <typename T>
__global__ void __launch_bounds__(kCopyThreads) copy_all(const Copies copies) {
  copy_rows<T>(copies.at[blockIdx.y], static_cast<int>(threadIdx.x), blockIdx.x, gridDim.x);
}

}  // namespace layer_padding_cu

const char* cuda_copy(lltm_dtype dtype, int32_t count, const lltm_copy* copies,
                      const lltm_execution* execution) {
  return dispatch_dtype(dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const DeviceScope device(execution->device_index);
    if (device.error() != cudaSuccess) return error_text("copy", device.error());
    Copies all = {};
    std::copy_n(copies, count, all.at);
    int64_t blocks = 1;
    for (int32_t i = 0; i < count; ++i) blocks = std::max(blocks, copy_blocks(copies[i]));
    copy_all<T><<<dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(count)), kCopyThreads,
                  0, static_cast<cudaStream_t>(execution->stream)>>>(all);
    return error_text("copy", cudaGetLastError());
  });
}

}  // namespace lltm
