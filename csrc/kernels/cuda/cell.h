// The cell's CUDA functions. ../lltm_kernels.h describes the functions of the kernel table.
#pragma once

#include "../lltm_kernels.h"

namespace lltm {

// pointwise.cu: a step without its products, the sums of a matrix's columns, and copies.
const char* cuda_cell_forward(lltm_dtype, const lltm_step_forward_arguments*,
                              const lltm_execution*);
const char* cuda_cell_backward(lltm_dtype, const lltm_step_backward_arguments*,
                               const lltm_execution*);
const char* cuda_column_sum(lltm_dtype, const lltm_column_sum_arguments*, const lltm_execution*);
// Makes all copies in one launch. Rows and columns that only the target has become zeros.
const char* cuda_copy(lltm_dtype, int32_t count, const lltm_copy*, const lltm_execution*);
struct Copies {
  int32_t count = 0;
  lltm_copy at[LLTM_MOST_COPIES];
};
// cuda_cell_forward and cuda_cell_backward for a (B, 3S) matrix with gaps between rows. Forward
// reads the pre-activations from `from` and writes them to gates. Backward does not write the gaps
// of d_gates, and makes copies in the same launch.
const char* cell_forward_from(lltm_dtype, const lltm_step_forward_arguments&, const void* from,
                              int64_t from_stride, const lltm_execution&);
const char* cell_backward_to(lltm_dtype, const lltm_step_backward_arguments&, int64_t to_stride,
                             const Copies&, const lltm_execution&);
// The bytes of workspace that cell_backward_to needs to sum d_bias too.
int64_t cell_backward_workspace(lltm_dtype, int64_t batch_size, int64_t state_size);

// step_plan.cu, step_forward.cu, step_backward.cu: whole steps. The names kRows* give the batch
// rows per block in forward, for aligned operands. Backward runs the same kernels for all kRows*.
enum StepFamily {
  kGemm = 0,  // the caller's GEMM and the kernels of pointwise.cu
  kRows4 = 1,
  kRows16 = 2,
  kRows32 = 3,
  kRows64 = 4,
  kCublas = 5,  // step_cublas.cu
  kTensor = 6,  // forward, by tensor cores
  kPlanes = 7,  // step_planes.cu
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

// step_cublas.cu: a step by cuBLAS.
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

// product.cu: whether cuda_product can be called, and whether torch's flag lets it round to tf32.
bool can_multiply(const lltm_execution&);
bool torch_allows_tf32(const lltm_execution&);
const char* cuda_product(lltm_dtype, const lltm_product_arguments*, const lltm_execution*);
// Like cuda_product, with a result of the type `to_dtype`: the other matrices' type, or float32.
const char* product_to(lltm_dtype, lltm_dtype to_dtype, const lltm_product_arguments&);

}  // namespace lltm
