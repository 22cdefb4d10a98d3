// The CPU kernels for Arm processors that convert to bfloat16.
#ifdef __aarch64__
#include "level_headers.h"

#define LLTM_LEVEL neon_bf16
#define LLTM_LEVEL_TABLE kBf16Level
#define LLTM_LEVEL_NAME "bf16"
#define LLTM_VECTOR_BYTES 16
#define LLTM_HAS_BFCVTN
// A pragma, not a compiler flag: every way of building compiles these sources alike.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("arch=armv8.2-a+bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+bf16")
#endif
#include "level_table.h"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // __aarch64__
