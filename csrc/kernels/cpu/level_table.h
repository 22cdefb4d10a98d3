// The kernels of one instruction set. Each level_*.cpp includes this file once, with
//   LLTM_LEVEL         the namespace of the kernels, and the name of their array in CpuLevels
//   LLTM_LEVEL_TARGET  the compiler's name of the instruction set; not defined for the baseline
//   LLTM_VECTOR_BYTES  the width of a register in bytes
//   LLTM_ONLY_BFLOAT16 defined if the level has kernels of bfloat16 alone
#include "level_headers.h"

// Pragmas, not compiler flags, set the instruction set, so that a build needs no flags for single
// files.
#define LLTM_PRAGMA(words) _Pragma(#words)
#ifndef LLTM_LEVEL_TARGET
#define LLTM_BEGIN_TARGET(names)
#define LLTM_END_TARGET
#elif defined(__clang__)
#define LLTM_BEGIN_TARGET(names) \
  LLTM_PRAGMA(clang attribute push(__attribute__((target(names))), apply_to = function))
#define LLTM_END_TARGET LLTM_PRAGMA(clang attribute pop)
#else
#define LLTM_BEGIN_TARGET(names) LLTM_PRAGMA(GCC push_options) LLTM_PRAGMA(GCC target(names))
#define LLTM_END_TARGET LLTM_PRAGMA(GCC pop_options)
#endif

LLTM_BEGIN_TARGET(LLTM_LEVEL_TARGET)
// clang-format off: each file uses those before it
#include "../cell_math.h"
#include "simd.h"
#include "vector_math.h"
#include "pointwise_vectors.h"
#include "tiles.h"
#include "product.h"
#ifdef LLTM_MULTIPLIES_TILES
#include "pair_tiles.h"
#endif
#include "layer_vectors.h"
#include "step_vectors.h"
// clang-format on

namespace lltm::LLTM_LEVEL {

template <typename T>
constexpr CpuKernels kernels_of() {
  CpuKernels kernels = {};
  kernels.pointwise_forward = Pointwise<T>::forward;
  kernels.pointwise_backward = Pointwise<T>::backward;
  kernels.column_sum = Pointwise<T>::column_sum;
  kernels.layer_forward = Sequence<T>::forward;
  kernels.layer_backward = Sequence<T>::backward;
  kernels.layer_cells = Pointwise<T>::cells;
  kernels.step_forward = Step<T>::forward;
  kernels.step_backward = Step<T>::backward;
  kernels.product = Product<T>::run;
  kernels.layer_plan = Sequence<T>::plan;
  return kernels;
}

}  // namespace lltm::LLTM_LEVEL

#ifdef LLTM_ONLY_BFLOAT16
const lltm::CpuKernels lltm::CpuLevels::LLTM_LEVEL = lltm::LLTM_LEVEL::kernels_of<lltm::bfloat16>();
#else
const lltm::CpuKernels lltm::CpuLevels::LLTM_LEVEL[4] = {
    lltm::LLTM_LEVEL::kernels_of<lltm::float16>(), lltm::LLTM_LEVEL::kernels_of<float>(),
    lltm::LLTM_LEVEL::kernels_of<double>(), lltm::LLTM_LEVEL::kernels_of<lltm::bfloat16>()};
#endif
LLTM_END_TARGET
