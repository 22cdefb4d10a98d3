// The CPU kernels of bfloat16 for processors with AVX-512 whose vectors also multiply pairs of
// bfloat16.
#include "level_headers.h"
#ifdef LLTM_HAS_AVX512_BF16
#define LLTM_LEVEL avx512_bf16
#define LLTM_LEVEL_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma"
#define LLTM_VECTOR_BYTES 64
#define LLTM_MULTIPLIES_PAIRS
#define LLTM_ONLY_BFLOAT16
#include "level_table.h"
#endif
