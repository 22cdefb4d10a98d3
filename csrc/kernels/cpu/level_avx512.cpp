// The CPU kernels for processors with AVX-512 (F, BW, DQ and VL).
#ifdef __x86_64__
#define LLTM_LEVEL avx512
#define LLTM_LEVEL_TARGET "avx512f,avx512bw,avx512dq,avx512vl,fma"
#define LLTM_VECTOR_BYTES 64
#include "level_table.h"
#endif
