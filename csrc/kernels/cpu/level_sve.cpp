// The CPU kernels for Arm processors with SVE and an instruction that converts to bfloat16.
// `multiply` in tiles.h uses SVE vectors of any length; everything else uses NEON.
#include "level_headers.h"
#ifdef LLTM_HAS_SVE
#include <arm_sve.h>

#define LLTM_LEVEL sve
#define LLTM_LEVEL_TARGET "arch=armv8.2-a+sve+bf16"
#define LLTM_VECTOR_BYTES 16
#define LLTM_HAS_BFCVTN
#define LLTM_MULTIPLIES_BY_SVE
#include "level_table.h"
#endif
