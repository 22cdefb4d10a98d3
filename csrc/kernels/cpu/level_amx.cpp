// The CPU kernels of bfloat16 for processors with AMX, whose tiles multiply 16 rows of pairs.
#include "level_headers.h"
#ifdef LLTM_HAS_AMX
#define LLTM_LEVEL amx
#define LLTM_LEVEL_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16,fma"
#define LLTM_VECTOR_BYTES 64
#define LLTM_MULTIPLIES_PAIRS
#define LLTM_MULTIPLIES_TILES
#define LLTM_ONLY_BFLOAT16
#include "level_table.h"
#endif
