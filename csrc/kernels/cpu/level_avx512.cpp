// The CPU kernels for processors with avx512f,avx512bw,avx512dq,avx512vl,fma.
#ifdef __x86_64__
#include "level_headers.h"

#define LLTM_LEVEL avx512
#define LLTM_LEVEL_TABLE kAvx512Level
#define LLTM_LEVEL_NAME "avx512"
#define LLTM_VECTOR_BYTES 64
// A pragma, not a compiler flag: every way of building compiles these sources alike.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")
#endif
#include "level_table.h"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // __x86_64__
