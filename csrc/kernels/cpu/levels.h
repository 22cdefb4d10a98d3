// The CPU kernels of one instruction set: what each level_*.cpp defines.
#pragma once

#include "../lltm_kernels.h"
#include "../types.h"
#include "layer_level.h"
#include "step_level.h"

namespace lltm {

// Each works on columns [begin, end) of batch entry n.
struct CellKernels {
  void (*forward)(const lltm_cell_forward_arguments&, int64_t n, int64_t begin, int64_t end);
  void (*backward)(const lltm_cell_backward_arguments&, int64_t n, int64_t begin, int64_t end);
};

struct Level {
  const char* name;
  CellKernels cell[4];  // by lltm_dtype, likewise the others
  LayerKernels layer[4];
  StepKernels step[4];
};

extern const Level kBaselineLevel;
#ifdef __x86_64__
extern const Level kAvx2Level;
extern const Level kAvx512Level;
#endif

// The best level that this processor has, or the one that LLTM_CPU_CAPABILITY (default, avx2,
// avx512) names; never one that the processor lacks. NULL when the variable names no level.
const Level* cpu_level();

// The error when that is NULL.
inline constexpr const char* kUnknownLevel =
    "lltm: LLTM_CPU_CAPABILITY names no instruction set; set it to default, avx2 or avx512, or "
    "unset it";

}  // namespace lltm
