// The CPU kernels of one instruction set: what each level_*.cpp defines.
#pragma once

#include "../dispatch.h"
#include "../lltm_kernels.h"
#include "../types.h"
#include "layer_level.h"
#include "step_level.h"

namespace lltm {

// Work on part of one row: columns [begin, end) of batch entry n.
template <typename T>
struct CellKernels {
  void (*forward)(const lltm_cell_forward_arguments&, int64_t n, int64_t begin, int64_t end);
  void (*backward)(const lltm_cell_backward_arguments&, int64_t n, int64_t begin, int64_t end);
};

struct Level {
  const char* name;
  CellKernels<float> float32;
  CellKernels<double> float64;
  CellKernels<float16> half;
  CellKernels<bfloat16> brain;
  LayerKernels layer[4];  // by lltm_dtype
  StepKernels step[4];

  const CellKernels<float>& cell(float) const { return float32; }
  const CellKernels<double>& cell(double) const { return float64; }
  const CellKernels<float16>& cell(float16) const { return half; }
  const CellKernels<bfloat16>& cell(bfloat16) const { return brain; }
};

extern const Level kBaselineLevel;
#ifdef __x86_64__
extern const Level kAvx2Level;
extern const Level kAvx512Level;
#endif

// The best level that this processor has, or the one that LLTM_CPU_CAPABILITY (default, avx2,
// avx512) names; never one that the processor lacks. NULL when the variable names no level.
const Level* cpu_level();

// What a caller is told when that is NULL.
inline constexpr const char* kUnknownLevel =
    "lltm: LLTM_CPU_CAPABILITY names no instruction set; set it to default, avx2 or avx512, or "
    "unset it";

}  // namespace lltm
