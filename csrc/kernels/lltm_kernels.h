// The C interface between the glue (which knows torch) and the kernels (which do not).
//
// Kernels are compiled once per device and CUDA major; glue once per torch ABI. At run time the two
// meet through `lltm_kernel_table`, so any glue works with any kernels of the same LLTM_KERNEL_ABI.
#ifndef LLTM_KERNELS_H_
#define LLTM_KERNELS_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Raised whenever a struct below changes in any way but by new members at the end of the table.
#define LLTM_KERNEL_ABI 1

#define LLTM_EXPORT __attribute__((visibility("default")))

typedef enum {
  LLTM_FLOAT32 = 0,
  LLTM_FLOAT64 = 1,
  LLTM_FLOAT16 = 2,
  LLTM_BFLOAT16 = 3,
} lltm_dtype;

typedef void (*lltm_range_function)(int64_t begin, int64_t end, void* context);

// Calls `function` on disjoint ranges that cover [begin, end), possibly on several threads.
typedef void (*lltm_parallel_for)(int64_t begin, int64_t end, int64_t grain_size,
                                  lltm_range_function function, void* context);

// Where a kernel runs: a CUDA device and stream, or the caller's CPU thread pool.
typedef struct {
  int32_t device_index;
  void* stream;                    // cudaStream_t; NULL is the legacy default stream
  lltm_parallel_for parallel_for;  // CPU kernels only
} lltm_execution;

// One LLTM step behind the GEMM. All tensors are contiguous and of one dtype.
typedef struct {
  int64_t batch_size;    // B
  int64_t state_size;    // S
  void* gates;           // (B, 3, S): pre-activations z_i, z_o, z_c
  const void* bias;      // (3S): is added to gates in place; or NULL when gates have it already
  const void* old_cell;  // (B, S)
  void* new_h;           // (B, S), written
  void* new_cell;        // (B, S), written
} lltm_cell_forward_arguments;

typedef struct {
  int64_t batch_size;
  int64_t state_size;
  const void* grad_h;      // (B, S) or NULL, which means zero; likewise the next two
  const void* grad_cell;   // (B, S) or NULL
  const void* grad_gates;  // (B, 3, S) or NULL
  const void* gates;       // (B, 3, S): pre-activations
  const void* new_cell;    // (B, S)
  void* d_gates;           // (B, 3, S), written
  void* d_old_cell;        // (B, S), written, or NULL when it is not wanted
} lltm_cell_backward_arguments;

// sums[column] = sum over rows of matrix[row][column]: the gradient of a bias.
typedef struct {
  int64_t rows;
  int64_t columns;
  const void* matrix;  // (rows, columns)
  void* sums;          // (columns), written
} lltm_column_sum_arguments;

// Kernels return NULL, or a text that says what failed (valid until the thread's next call).
typedef struct {
  uint32_t abi;        // LLTM_KERNEL_ABI of the kernels
  uint32_t byte_size;  // sizeof(lltm_kernel_functions) of the kernels
  const char* device;  // "cpu" or "cuda"
  const char* (*cell_forward)(lltm_dtype, const lltm_cell_forward_arguments*,
                              const lltm_execution*);
  const char* (*cell_backward)(lltm_dtype, const lltm_cell_backward_arguments*,
                               const lltm_execution*);
  const char* (*column_sum)(lltm_dtype, const lltm_column_sum_arguments*, const lltm_execution*);
} lltm_kernel_functions;

const lltm_kernel_functions* lltm_cpu_kernels(void);
const lltm_kernel_functions* lltm_cuda_kernels(void);

#ifdef __cplusplus
}
#endif

#endif  // LLTM_KERNELS_H_
