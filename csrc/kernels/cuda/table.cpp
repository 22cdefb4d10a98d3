// The entry point of kernels-cuda12.so and kernels-cuda13.so.
#include "../lltm_kernels.h"

extern "C" PROJECT_EXPORT const void* lltm_kernel_table(void) { return lltm_cuda_kernels(); }
