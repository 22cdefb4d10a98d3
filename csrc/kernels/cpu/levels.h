// The CPU kernels of one instruction set. Each level_*.cpp defines one Level.
#pragma once

#include "../lltm_kernels.h"

namespace lltm {

template <typename Arguments>
using CpuKernel = const char* (*)(const Arguments&, const lltm_execution&);

// The kernels of one dtype; ../lltm_kernels.h describes what they compute.
struct CpuKernels {
  CpuKernel<lltm_step_forward_arguments> cell_forward;
  CpuKernel<lltm_step_backward_arguments> cell_backward;
  CpuKernel<lltm_column_sum_arguments> column_sum;
  CpuKernel<lltm_layer_forward_arguments> layer_forward;
  CpuKernel<lltm_layer_backward_arguments> layer_backward;
  CpuKernel<lltm_layer_cells_arguments> layer_cells;
  CpuKernel<lltm_step_forward_arguments> step_forward;
  CpuKernel<lltm_step_backward_arguments> step_backward;
  int64_t (*layer_workspace)(lltm_pass, const lltm_layer_sizes&);        // in bytes
  bool (*layer_makes_all_products)(lltm_pass, const lltm_layer_sizes&);  // as in a plan
};

struct Level {
  const char* name;
  CpuKernels kernels[4];  // by lltm_dtype
};

extern const Level kBaselineLevel;
#ifdef __x86_64__
extern const Level kAvx2Level;
extern const Level kAvx512Level;
#elif defined(__aarch64__)
extern const Level kBf16Level;  // the baseline is NEON
// SVE functions next to functions for other targets need GCC 10 or clang 16.
#if defined(__clang__) ? __clang_major__ >= 16 : __GNUC__ >= 10
#define LLTM_HAS_SVE
extern const Level kSveLevel;
int64_t sve_bytes();  // of a vector; only for processors with SVE
#endif
#endif

// Returns the best level of this processor, or the one that LLTM_CPU_CAPABILITY (default, avx2,
// avx512; on Arm default, bf16, sve) names. Never returns a level that the processor lacks. Returns
// NULL if the variable names no level.
const Level* cpu_level();

// The error text for that NULL.
inline constexpr const char* kUnknownLevel =
#ifdef __aarch64__
    "lltm: LLTM_CPU_CAPABILITY names no instruction set; set it to default, bf16 or sve, or "
    "unset it";
#else
    "lltm: LLTM_CPU_CAPABILITY names no instruction set; set it to default, avx2 or avx512, or "
    "unset it";
#endif

// Defined in step.cpp and layer.cpp, which decide what is quicker.
const char* cpu_step_plan(lltm_dtype, lltm_pass, int32_t needs, const lltm_step_sizes*,
                          const lltm_execution*, lltm_step_plan*);
const char* cpu_layer_plan(lltm_dtype, lltm_pass, const lltm_layer_sizes*, const lltm_execution*,
                           lltm_layer_plan*);

}  // namespace lltm
