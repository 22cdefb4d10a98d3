// The kernels of one instruction set. Each level_*.cpp includes this file once, with
//   LLTM_LEVEL         the namespace of its kernels, declared in level_headers.h
//   LLTM_LEVEL_TARGET  its name for the compiler; not set for the baseline
//   LLTM_VECTOR_BYTES  the width of its registers
#include "level_headers.h"

// Pragmas instead of compiler flags, so that every build compiles these sources alike.
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
#include "weights_gradient.h"
//
#include "layer_vectors.h"
//
#include "step_vectors.h"

namespace lltm::LLTM_LEVEL {

template <typename T>
constexpr CpuKernels kernels_of() {
  CpuKernels kernels = {};
  kernels.cell_forward = Cell<T>::forward;
  kernels.cell_backward = Cell<T>::backward;
  kernels.column_sum = Cell<T>::column_sum;
  kernels.layer_forward = Sequence<T>::forward;
  kernels.layer_backward = Sequence<T>::backward;
  kernels.layer_cells = Sequence<T>::cells;
  kernels.step_forward = Step<T>::forward;
  kernels.step_backward = Step<T>::backward;
  kernels.layer_workspace = Sequence<T>::workspace_bytes;
  kernels.layer_makes_all_products = Sequence<T>::makes_all_products;
  return kernels;
}

const CpuKernels kKernels[4] = {kernels_of<float>(), kernels_of<double>(), kernels_of<float16>(),
                                kernels_of<bfloat16>()};

}  // namespace lltm::LLTM_LEVEL
LLTM_END_TARGET
