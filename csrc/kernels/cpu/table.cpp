// The entry point of kernels-cpu.so.
#include "../lltm_kernels.h"

extern "C" LLTM_EXPORT const void* lltm_kernel_table(void) { return lltm_cpu_kernels(); }
