// The CPU kernels for every processor of the platform.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "levels.h"

#define LLTM_LEVEL baseline
#define LLTM_VECTOR_BYTES 16
#include "simd.h"
//
#include "vector_math.h"
//
#include "cell_vectors.h"

namespace lltm {

const Level kBaselineLevel = {
    "default",
    {baseline::Row<float>::forward, baseline::Row<float>::backward},
    {baseline::Row<double>::forward, baseline::Row<double>::backward},
    {baseline::Row<float16>::forward, baseline::Row<float16>::backward},
    {baseline::Row<bfloat16>::forward, baseline::Row<bfloat16>::backward},
};

}  // namespace lltm
