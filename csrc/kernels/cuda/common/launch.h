// Helpers for launches and their plans.
#pragma once

#include "torchship/kernels/cuda.h"

#include "../../lltm_kernels.h"
#include "../../types.h"

namespace lltm {

// Returns what `ask` returns: a number for a kernel, a size and a device. Each thread remembers its
// latest kAnswers numbers other than 0, since most questions come many times.
template <typename Ask>
int remembered(const void* kernel, int64_t size, int32_t device_index, const Ask& ask) {
  struct Answer {
    const void* kernel;
    int64_t size;
    int32_t device_index;
    int number;
  };
  constexpr unsigned kAnswers = 32;  // a training step of a layer asks a dozen questions
  thread_local Answer answers[kAnswers] = {};
  thread_local unsigned oldest = 0;
  for (const Answer& answer : answers) {
    if (answer.kernel == kernel && answer.size == size && answer.device_index == device_index) {
      return answer.number;
    }
  }
  const int number = ask();
  if (number != 0) answers[oldest++ % kAnswers] = {kernel, size, device_index, number};
  return number;
}

// The value of a device's attribute, or 0 if CUDA reports an error. With 0, a plan still chooses a
// family, and the next launch reports the error.
inline int device_fact(cudaDeviceAttr attribute, int32_t device_index) {
  return remembered(nullptr, attribute, device_index, [&] {
    int value = 0;
    if (cudaDeviceGetAttribute(&value, attribute, device_index) != cudaSuccess) cudaGetLastError();
    return value;
  });
}

// Whether the device runs code of `kernel` that was compiled for a compute capability of at least
// `capability` / 10. A device can also run code for older capabilities, without the features of
// later ones.
inline bool compiled_for(const void* kernel, int capability, int32_t device_index) {
  return remembered(kernel, 0, device_index, [&] {
           const DeviceScope device(device_index);
           cudaFuncAttributes attributes = {};
           if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) cudaGetLastError();
           return attributes.ptxVersion;
         }) >= capability;
}

constexpr __host__ __device__ int64_t divide_up(int64_t numerator, int64_t denominator) {
  return (numerator + denominator - 1) / denominator;
}

inline dim3 grid_of(int64_t x, int64_t y = 1) {
  return {static_cast<unsigned>(x), static_cast<unsigned>(y), 1};
}

// Calls `launch(T{}, stream)`, with the storage type T of `dtype`, on the device and the stream of
// `execution`. Returns NULL, or the text of an error, which names `kernel`.
template <typename Launch>
const char* launch_on(const lltm_execution& execution, const char* kernel, lltm_dtype dtype,
                      const Launch& launch) {
  const DeviceScope device(execution.device_index);
  if (device.error() != cudaSuccess) return error_text(kernel, device.error());
  return dispatch_floating(dtype, [&](auto zero) -> const char* {
    launch(zero, static_cast<cudaStream_t>(execution.stream));
    return error_text(kernel, cudaGetLastError());
  });
}

// Waits until earlier kernels in the stream have ended and their results can be read. A kernel that
// starts early calls this first.
LLTM_DEVICE void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Whether `kernel` may start early, which code for compute capability 9.0 or later can do. During
// the capture of a graph it may not, since older runtimes refuse to capture early launches.
inline bool may_start_early(const void* kernel, const lltm_execution& execution) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return capture == cudaStreamCaptureStatusNone && compiled_for(kernel, 90, execution.device_index);
}

// Launches a kernel that calls wait_for_earlier first. A launch that starts early overlaps the end
// of the previous kernel in the stream: a short kernel after a GEMM then starts more than a
// microsecond earlier.
template <typename... Parameters>
void launch_early(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                  const lltm_execution& execution, Parameters... arguments) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  const unsigned attributes =
      may_start_early(reinterpret_cast<const void*>(kernel), execution) ? 1 : 0;
  const cudaLaunchConfig_t config = {
      grid, block, 0, static_cast<cudaStream_t>(execution.stream), &early, attributes};
  cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace lltm
