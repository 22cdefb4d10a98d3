// The CPU kernels of bfloat16 for Arm processors with an instruction that converts to bfloat16.
#ifdef __aarch64__
#define LLTM_LEVEL neon_bf16
#define LLTM_LEVEL_TARGET "arch=armv8.2-a+bf16"
#define LLTM_VECTOR_BYTES 16
#define LLTM_HAS_BFCVTN
#define LLTM_ONLY_BFLOAT16
#include "level_table.h"
#endif
