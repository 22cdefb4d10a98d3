// The CPU kernels for processors with AVX2 and FMA.
#ifdef __x86_64__
#define LLTM_LEVEL avx2
#define LLTM_LEVEL_TARGET "avx2,fma"
#define LLTM_VECTOR_BYTES 32
#include "level_table.h"
#endif
