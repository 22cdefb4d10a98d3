// A launch that overlaps the end of the kernel before it in the stream (compute capability 9.0): a
// short kernel after a GEMM then starts more than a microsecond earlier.
#pragma once

#include "../types.h"
#include "launch.h"

namespace lltm {

// Waits until earlier kernels in the stream have ended and their results can be read. A kernel that
// launch_early starts calls this first.
LLTM_DEVICE void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Whether that kernel may start early. Not during the capture of a graph: its launches never
// overlap, and older runtimes refuse to capture such launches.
inline bool may_start_early(const void* kernel, const lltm_execution& execution) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return capture == cudaStreamCaptureStatusNone &&
         device_facts(execution.device_index).major >= 9 &&
         remembered(kernel, 0, execution.device_index,
                    [&] { return compiled_for(kernel, 90) ? 1 : 0; }) != 0;
}

template <typename... Parameters>
cudaError_t launch_early(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                         const lltm_execution& execution, Parameters... arguments) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = static_cast<cudaStream_t>(execution.stream);
  config.attrs = &early;
  const void* const function = reinterpret_cast<const void*>(kernel);
  config.numAttrs = may_start_early(function, execution) ? 1 : 0;
  void* parameters[] = {&arguments...};
  const cudaError_t error = cudaLaunchKernelExC(&config, function, parameters);
  return error != cudaSuccess ? error : cudaGetLastError();
}

}  // namespace lltm
