// Whole steps on the CPU, as the kernel table offers them.
#pragma once

#include "../lltm_kernels.h"

namespace lltm {

const char* cpu_step_plan(lltm_dtype dtype, int32_t needs, const lltm_step_sizes* sizes,
                          const lltm_execution* execution, lltm_step_plan* plan);
const char* cpu_step_forward(lltm_dtype dtype, int32_t family,
                             const lltm_step_forward_arguments* arguments,
                             const lltm_execution* execution);
const char* cpu_step_backward(lltm_dtype dtype, int32_t family,
                              const lltm_step_backward_arguments* arguments,
                              const lltm_execution* execution);

}  // namespace lltm
