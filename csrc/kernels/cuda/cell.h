// The cell's entries of the kernel table. ../lltm_kernels.h describes them.
#pragma once

#include "../lltm_kernels.h"

namespace lltm {

// pointwise.cu: what follows the GEMM.
const char* cuda_cell_forward(lltm_dtype, const lltm_step_forward_arguments*,
                              const lltm_execution*);
const char* cuda_cell_backward(lltm_dtype, const lltm_step_backward_arguments*,
                               const lltm_execution*);
// Bytes that cuda_cell_backward needs to sum d_bias.
int64_t cuda_cell_backward_workspace(lltm_dtype, int64_t batch_size, int64_t state_size,
                                     const lltm_execution*);
const char* cuda_column_sum(lltm_dtype, const lltm_column_sum_arguments*, const lltm_execution*);

// step_plan.cu, step_forward.cu, step_backward.cu: whole steps. A family's name says how many rows
// of the batch a block takes forward; backward has one family, called kRows16.
enum StepFamily {
  kGemm = 0,  // the caller's GEMM, then the kernels of pointwise.cu
  kRows4 = 1,
  kRows16 = 2,
  kRows32 = 3,
  kRows64 = 4,
};

const char* cuda_step_plan(lltm_dtype, lltm_pass, int32_t needs, const lltm_step_sizes*,
                           const lltm_execution*, lltm_step_plan*);
const char* cuda_step_forward(lltm_dtype, int32_t family, const lltm_step_forward_arguments*,
                              const lltm_execution*);
const char* cuda_step_backward(lltm_dtype, int32_t family, const lltm_step_backward_arguments*,
                               const lltm_execution*);

// product.cu. The workspace of cuda_product, 0 where it cannot be used now.
int64_t cuda_product_workspace(const lltm_execution*);
const char* cuda_product(lltm_dtype, const lltm_product_arguments*, const lltm_execution*);

}  // namespace lltm
