// The CPU kernels for Arm processors with an instruction that converts to bfloat16.
#ifdef __aarch64__
#define LLTM_LEVEL neon_bf16
#define LLTM_LEVEL_TARGET "arch=armv8.2-a+bf16"
#define LLTM_VECTOR_BYTES 16
#define LLTM_HAS_BFCVTN
#include "level_table.h"
#endif
