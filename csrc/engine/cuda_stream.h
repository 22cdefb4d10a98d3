// torch's current CUDA stream, asked through a C function that torch >= 2.4 exports from
// libtorch_cuda. The reference is weak, so one glue loads into CPU and CUDA builds alike, and no
// CUDA header is needed.
#pragma once

#include <cstdint>

#include "../project.h"

extern "C" __attribute__((weak)) int32_t aoti_torch_get_current_cuda_stream(int32_t device_index,
                                                                            void** stream);

namespace PROJECT_NAMESPACE {

// False when this build of torch has no CUDA, or torch failed.
inline bool current_cuda_stream(int32_t device_index, void** stream) {
  return aoti_torch_get_current_cuda_stream != nullptr &&
         aoti_torch_get_current_cuda_stream(device_index, stream) == 0;
}

}  // namespace PROJECT_NAMESPACE
