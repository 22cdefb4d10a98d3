// The CPU kernels for processors with avx2,fma.
#ifdef __x86_64__
#include "level_headers.h"

#define LLTM_LEVEL avx2
#define LLTM_LEVEL_TABLE kAvx2Level
#define LLTM_LEVEL_NAME "avx2"
#define LLTM_VECTOR_BYTES 32
// A pragma, not a compiler flag: every way of building compiles these sources alike.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#include "level_table.h"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // __x86_64__
