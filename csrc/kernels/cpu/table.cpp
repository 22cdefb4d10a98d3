// The entry point of kernels-cpu.so.
#include "../lltm_kernels.h"
#include "levels.h"

extern "C" PROJECT_EXPORT const void* lltm_kernel_table(void) { return lltm_cpu_kernels(); }

// The instruction set in use: default, avx2, avx512, or unknown.
extern "C" PROJECT_EXPORT const char* lltm_cpu_capability(void) {
  const lltm::Level* level = lltm::cpu_level();
  return level == nullptr ? "unknown" : level->name;
}
