// The step's CUDA functions. ../../lltm_kernels.h describes the functions of the kernel table.
#pragma once

#include "../../lltm_kernels.h"
#include "../common/copies.h"

namespace lltm {

// pointwise.cu: a step without its products, and the sums of a matrix's columns.
const char* cuda_pointwise_forward(lltm_dtype, const lltm_step_forward_arguments*,
                                   const lltm_execution*);
const char* cuda_pointwise_backward(lltm_dtype, const lltm_step_backward_arguments*,
                                    const lltm_execution*);
const char* cuda_column_sum(lltm_dtype, const lltm_column_sum_arguments*, const lltm_execution*);
// cuda_pointwise_forward and cuda_pointwise_backward for a (B, 3S) matrix with gaps between rows.
// Forward reads the pre-activations from `from` and writes them to gates. Backward does not write
// the gaps of d_gates, and makes copies in the same launch.
const char* pointwise_forward_from(lltm_dtype, const lltm_step_forward_arguments&, const void* from,
                                   int64_t from_stride, const lltm_execution&);
const char* pointwise_backward_to(lltm_dtype, const lltm_step_backward_arguments&,
                                  int64_t to_stride, const Copies&, const lltm_execution&);
// The bytes of workspace that pointwise_backward_to needs to sum d_bias too.
int64_t pointwise_backward_workspace(lltm_dtype, int64_t batch_size, int64_t state_size);

// step_plan.cu, step_forward.cu, step_backward.cu: whole steps. The names kRows* give the batch
// rows per block in forward, for aligned operands. Backward runs the same kernels for all kRows*.
enum StepFamily {
  kGemm = 0,  // the caller's GEMM and the kernels of pointwise.cu
  kRows4 = 1,
  kRows16 = 2,
  kRows64 = 3,
  kCublas = 4,  // step_cublas.cu
  kTensor = 5,  // forward, by tensor cores
  kPlanes = 6,  // step_planes.cu
};
// In kTensor, steps of up to this number of batch rows use FewRowsTensorTile, if the rows of their
// operands are aligned to words of 4 bytes but not to vectors of 16 bytes.
constexpr int kFewRows = 32;

const char* cuda_step_plan(lltm_dtype, lltm_pass, int32_t needs, const lltm_step_sizes*,
                           const lltm_execution*, lltm_step_plan*);
const char* cuda_step_forward(lltm_dtype, int32_t family, const lltm_step_forward_arguments*,
                              const lltm_execution*);
const char* cuda_step_backward(lltm_dtype, int32_t family, const lltm_step_backward_arguments*,
                               const lltm_execution*);

// Whether the device runs the family kTensor for this dtype, with float32 rounded to tf32.
bool runs_tensor_step(lltm_dtype, const lltm_execution&);

// step_cublas.cu: a step by cuBLAS. Here and below, `allow_tf32` of the sizes is that of the plan.
int64_t cublas_step_workspace(lltm_dtype, lltm_pass, int32_t needs, const lltm_step_sizes&,
                              const lltm_execution&);
const char* cublas_step_forward(lltm_dtype, const lltm_step_forward_arguments&,
                                const lltm_execution&);
const char* cublas_step_backward(lltm_dtype, const lltm_step_backward_arguments&,
                                 const lltm_execution&);

// step_planes.cu: a step by cuBLAS on unaligned weights, without a copy of them.
bool can_take_planes(lltm_dtype, const lltm_step_sizes&, const lltm_execution&);
int64_t planes_step_workspace(lltm_dtype, lltm_pass, int32_t needs, const lltm_step_sizes&,
                              const lltm_execution&);
const char* planes_step_forward(lltm_dtype, const lltm_step_forward_arguments&,
                                const lltm_execution&);
const char* planes_step_backward(lltm_dtype, const lltm_step_backward_arguments&,
                                 const lltm_execution&);

}  // namespace lltm
