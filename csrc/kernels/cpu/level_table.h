// The table of one instruction set's kernels. See level_*.cpp, which include this once each with
//   LLTM_LEVEL         the namespace of its kernels
//   LLTM_LEVEL_TABLE   the table's name, declared in levels.h
//   LLTM_LEVEL_NAME    as LLTM_CPU_CAPABILITY calls it
//   LLTM_VECTOR_BYTES  the width of its registers
// Headers of the C++ library come before, so that none of their functions is compiled for it.
#include "../cell_math.h"
//
#include "simd.h"
//
#include "vector_math.h"
//
#include "cell_vectors.h"
//
#include "tiles.h"
//
#include "layer_vectors.h"
//
#include "step_vectors.h"

namespace lltm {

const Level LLTM_LEVEL_TABLE = {
    LLTM_LEVEL_NAME,
    {LLTM_LEVEL::Row<float>::kernels(), LLTM_LEVEL::Row<double>::kernels(),
     LLTM_LEVEL::Row<float16>::kernels(), LLTM_LEVEL::Row<bfloat16>::kernels()},
    {LLTM_LEVEL::Sequence<float>::kernels(), LLTM_LEVEL::Sequence<double>::kernels(),
     LLTM_LEVEL::Sequence<float16>::kernels(), LLTM_LEVEL::Sequence<bfloat16>::kernels()},
    {LLTM_LEVEL::Step<float>::kernels(), LLTM_LEVEL::Step<double>::kernels(),
     LLTM_LEVEL::Step<float16>::kernels(), LLTM_LEVEL::Step<bfloat16>::kernels()},
};

}  // namespace lltm
