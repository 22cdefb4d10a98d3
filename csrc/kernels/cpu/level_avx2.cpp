// The CPU kernels for processors with avx2,fma.
#ifdef __x86_64__
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "levels.h"

#define LLTM_LEVEL avx2
#define LLTM_VECTOR_BYTES 32
// A pragma, not a compiler flag: every way of building compiles these sources alike.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#include "simd.h"
//
#include "vector_math.h"
//
#include "cell_vectors.h"

namespace lltm {

const Level kAvx2Level = {
    "avx2",
    {avx2::Row<float>::forward, avx2::Row<float>::backward},
    {avx2::Row<double>::forward, avx2::Row<double>::backward},
    {avx2::Row<float16>::forward, avx2::Row<float16>::backward},
    {avx2::Row<bfloat16>::forward, avx2::Row<bfloat16>::backward},
};

}  // namespace lltm
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // __x86_64__
