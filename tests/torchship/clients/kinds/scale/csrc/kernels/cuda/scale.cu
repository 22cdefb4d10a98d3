#include "torchship/kernels/cuda.h"
#include "torchship/kernels/dispatch.h"

#include "../scale.h"

namespace PROJECT_NAMESPACE {
namespace {

template <typename T>
__global__ void scale_elements(const T* x, T* y, int64_t count, compute_t<T> factor) {
  const int64_t k = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (k < count) y[k] = narrow<T>(widen(x[k]) * factor);
}

const char* scale(const Arguments* arguments, const Execution* execution) {
  if (arguments->count == 0) return nullptr;
  const DeviceScope device(execution->device_index);
  return dispatch_floating(arguments->dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* const x = static_cast<const T*>(arguments->x);
    auto* const y = static_cast<T*>(arguments->y);
    const auto factor = static_cast<compute_t<T>>(arguments->factor);
    const auto stream = static_cast<cudaStream_t>(execution->stream);
    const auto blocks = static_cast<unsigned>((arguments->count + 255) / 256);
    scale_elements<T><<<blocks, 256, 0, stream>>>(x, y, arguments->count, factor);
    return error_text("scale_elements", cudaGetLastError());
  });
}

const Kernels table = {{SCALE_KERNEL_ABI, sizeof(table), "cuda"}, scale};

}  // namespace
}  // namespace PROJECT_NAMESPACE

PROJECT_KERNEL_TABLE(cuda) { return &PROJECT_NAMESPACE::table; }
