// The CPU kernels for Arm processors with SVE that convert to bfloat16: NEON's, but products take
// vectors of any length.
#include "levels.h"
#ifdef LLTM_HAS_SVE
#include "level_headers.h"
//
#include <arm_sve.h>

#define LLTM_LEVEL sve
#define LLTM_LEVEL_TABLE kSveLevel
#define LLTM_LEVEL_NAME "sve"
#define LLTM_VECTOR_BYTES 16
#define LLTM_HAS_BFCVTN
#define LLTM_MULTIPLIES_BY_SVE
// A pragma, not a compiler flag: every way of building compiles these sources alike.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("arch=armv8.2-a+sve+bf16"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+sve+bf16")
#endif
#include "level_table.h"

namespace lltm {

int64_t sve_bytes() { return static_cast<int64_t>(svcntb()); }

}  // namespace lltm
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // LLTM_HAS_SVE
