// The layer's part of the CUDA kernel table.
#pragma once

#include "../lltm_kernels.h"

namespace lltm {

const char* cuda_layer_plan(lltm_dtype dtype, lltm_pass pass, const lltm_layer_sizes* sizes,
                            const lltm_execution* execution, lltm_layer_plan* plan);
const char* cuda_layer_forward(lltm_dtype dtype, int32_t family,
                               const lltm_layer_forward_arguments* arguments,
                               const lltm_execution* execution);
const char* cuda_layer_backward(lltm_dtype dtype, int32_t family,
                                const lltm_layer_backward_arguments* arguments,
                                const lltm_execution* execution);
const char* cuda_layer_cells(lltm_dtype dtype, const lltm_layer_cells_arguments* arguments,
                             const lltm_execution* execution);

}  // namespace lltm
