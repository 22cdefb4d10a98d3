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
#define LLTM_KERNEL_ABI 5
#define LLTM_MOST_SPLIT_K 4

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

// From step to step cells and their gradients are added up, and in 16 bits what is small beside the
// sum would be lost. In a sequence's loop over steps they are therefore float32 as well, or
// instead; elsewhere these structs are all zero.
typedef struct {
  const void* old_cell;  // (B, S), float32: read in the place of old_cell; or NULL
  void* new_cell;        // (B, S), float32: written beside new_cell; or NULL
} lltm_running_cell;

// Which gradients of cells are float32.
typedef struct {
  int32_t more_grad_cell;
  int32_t d_old_cell;
} lltm_wide_cells;

// One LLTM step behind the GEMM. All tensors are contiguous and, but for `running` and `wide`, of
// one dtype.

typedef struct {
  int64_t batch_size;    // B
  int64_t state_size;    // S
  void* gates;           // (B, 3, S): pre-activations z_i, z_o, z_c
  const void* bias;      // (3S): is added to gates in place; or NULL when gates have it already
  const void* old_cell;  // (B, S)
  void* new_h;           // (B, S), written
  void* new_cell;        // (B, S), written
  lltm_running_cell running;
} lltm_cell_forward_arguments;

// Elements from row to row and from column to column of grad_h and grad_cell, which often come from
// a sum and are one number, expanded. CUDA kernels only, and only where `given` is 1: else both are
// contiguous.
typedef struct {
  int32_t given;
  int64_t grad_h[2];
  int64_t grad_cell[2];
} lltm_gradient_strides;

typedef struct {
  int64_t batch_size;
  int64_t state_size;
  const void* grad_h;      // (B, S) or NULL, which means zero; likewise the next two
  const void* grad_cell;   // (B, S) or NULL
  const void* grad_gates;  // (B, 3, S) or NULL
  // Added to grad_h and grad_cell: in a sequence a state has two readers, the output and the step
  // behind it.
  const void* more_grad_h;     // (B, S) or more_grad_h_planes of them, or NULL
  const void* more_grad_cell;  // (B, S) or NULL
  const void* gates;           // (B, 3, S): pre-activations
  const void* new_cell;        // (B, S)
  void* d_gates;               // (B, 3, S), written
  void* d_old_cell;            // (B, S), written, or NULL when it is not wanted
  void* d_bias;                // (3S): sums of d_gates, written, or NULL when it is not wanted
  void* workspace;             // cell_backward_workspace's byte count, or NULL without d_bias
  lltm_gradient_strides strides;
  // [old_h, input], an operand of the weights' gradient, put side by side on the way. CUDA kernels
  // only.
  int64_t input_size;  // I; the four are read only where `joined` is wanted
  const void* old_h;   // (B, S)
  const void* input;   // (B, I)
  void* joined;        // (B, S + I), written, or NULL when it is not wanted
  // Of a sequence's loop over steps, only without d_bias. P where more_grad_h is (P, B, S), planes
  // to be added up, at most LLTM_MOST_SPLIT_K, CUDA kernels only; 0 is one.
  int32_t more_grad_h_planes;
  lltm_wide_cells wide;
} lltm_cell_backward_arguments;

// sums[column] = sum over rows of matrix[row][column]: the gradient of a bias.
typedef struct {
  int64_t rows;
  int64_t columns;
  const void* matrix;  // (rows, columns)
  void* sums;          // (columns), written
} lltm_column_sum_arguments;

// A whole sequence of steps, one layer in one direction, between the GEMMs that batch over time:
// the caller has made x W_x^T for all steps, and takes d_x, d_W and d_b from d_gates of all steps.

typedef struct {
  int64_t steps;          // T >= 1
  int64_t batch_size;     // B
  int64_t state_size;     // S
  int64_t weight_stride;  // elements between rows of weights: S + I
  int32_t reverse;        // 1: from t = T - 1 down to 0
  int32_t allow_tf32;     // 1: products of float32 may be rounded to tf32
} lltm_layer_sizes;

// Which of the kernels' own families would run a problem.
typedef struct {
  int32_t family;           // 0: none, so the caller loops over steps; else the kernels' own number
  int64_t workspace_bytes;  // 16-byte aligned memory that it needs; what is in it does not matter
  // 1: it makes the products that batch over time as well, which are else the caller's: forward's
  // x W_x^T, and backward's d_input and d_weights.
  int32_t makes_all_products;
} lltm_layer_plan;

// Contiguous tensors of one dtype, but for `weights`.
typedef struct {
  lltm_layer_sizes sizes;
  const void* weights;       // (3S, S) with rows `weight_stride` apart: the columns of h
  const void* bias;          // (3S): is added to gates; or NULL when gates have it (always on CUDA)
  const void* initial_h;     // (B, S), or NULL for zeros
  const void* initial_cell;  // (B, S), or NULL for zeros
  void* gates;               // (T, B, 3, S): in x W_x^T, out the pre-activations
  void* output;              // (T, B, S): h_t, written
  void* cells;               // (T, B, S): c_t, written; or NULL when nobody will read them
  void* final_h;             // (B, S): h after the last step, written
  void* final_cell;          // (B, S): c after the last step, written
  void* workspace;
  const void* input;  // (T, B, I): read by what makes all products, where gates are only written
} lltm_layer_forward_arguments;

typedef struct {
  lltm_layer_sizes sizes;
  const void* weights;          // as in forward
  const void* grad_output;      // (T, B, S) or NULL, which means zero; likewise the next three
  const void* grad_cells;       // (T, B, S) or NULL
  const void* grad_final_h;     // (B, S) or NULL
  const void* grad_final_cell;  // (B, S) or NULL
  const void* gates;            // (T, B, 3, S): pre-activations
  const void* cells;            // (T, B, S)
  void* d_gates;                // (T, B, 3, S), written
  void* d_initial_h;            // (B, S), written, or NULL when it is not wanted
  void* d_initial_cell;         // (B, S), written, or NULL when it is not wanted
  void* workspace;
  // For what makes all products:
  const void* input;      // (T, B, I)
  const void* initial_h;  // (B, S), or NULL for zeros
  const void* output;     // (T, B, S)
  void* d_input;          // (T, B, I), written, or NULL when it is not wanted
  void* d_weights;        // (3S, S + I), written, or NULL when it is not wanted
} lltm_layer_backward_arguments;

// The cells of a sequence from its gates: c_t = c_{t-1} + g_t i_t, forward's own additions.
typedef struct {
  lltm_layer_sizes sizes;
  const void* initial_cell;  // (B, S), or NULL for zeros
  const void* gates;         // (T, B, 3, S): pre-activations
  void* cells;               // (T, B, S), written
} lltm_layer_cells_arguments;

// One whole step, its products included, for kernels that have their own.

typedef struct {
  int64_t batch_size;     // B
  int64_t input_size;     // I; may be 0
  int64_t state_size;     // S
  int64_t weight_stride;  // elements between rows of weights: S + I
  int32_t allow_tf32;     // 1: the caller's GEMM may round float32 operands to tf32
} lltm_step_sizes;

// Which of the kernels' own families would run a step.
typedef struct {
  int32_t family;  // 0: none, so the caller takes its own GEMM; else the kernels' own number
  int64_t workspace_bytes;  // 16-byte aligned memory that it needs; what is in it does not matter
  // Without a family: in how many parts of its depth 3S, which they divide, the caller best makes
  // d_z W_h, as planes that cell_backward of the step before adds up; 0 is one.
  int32_t split_k;
} lltm_step_plan;

// All tensors are contiguous and of one dtype, but for rows of `weights`, `running` and `wide`.
typedef struct {
  lltm_step_sizes sizes;
  const void* input;          // (B, I)
  const void* weights;        // (3S, S + I) with rows `weight_stride` apart, the columns of h first
  const void* bias;           // (3S), or NULL for none
  const void* old_h;          // (B, S)
  const void* old_cell;       // (B, S)
  int32_t gates_hold_addend;  // 1: what gates hold is added to the products
  void* gates;                // (B, 3, S): pre-activations, written; or NULL when nobody reads them
  void* new_h;                // (B, S), written
  void* new_cell;             // (B, S), written
  void* workspace;
  // 1: gates are (B, 2, S), z_i and z_c. CPU kernels of float32 and float64 only.
  int32_t drops_output_gate;
  lltm_running_cell running;
} lltm_step_forward_arguments;

typedef struct {
  lltm_step_sizes sizes;
  const void* grad_h;          // (B, S) or NULL, which means zero; likewise the next two
  const void* grad_cell;       // (B, S) or NULL
  const void* grad_gates;      // (B, 3, S) or NULL
  const void* more_grad_h;     // (B, S) or NULL: added to grad_h
  const void* more_grad_cell;  // (B, S) or NULL: added to grad_cell
  const void* input;           // these as in forward
  const void* weights;
  const void* bias;      // read only where gates are made again
  const void* old_h;     // (B, S)
  const void* new_cell;  // (B, S)
  const void* gates;     // (B, 3, S): pre-activations; or NULL: they are made again
  void* d_gates;         // (B, 3, S), written, or NULL when nobody reads it
  void* d_input;         // (B, I), written, or NULL when it is not wanted; likewise the next four
  void* d_weights;       // (3S, S + I), rows without gaps
  void* d_bias;          // (3S)
  void* d_old_h;         // (B, S)
  void* d_old_cell;      // (B, S)
  void* workspace;
  lltm_gradient_strides strides;
  const void* new_h;  // (B, S) where forward dropped the output gate; else NULL
  lltm_wide_cells wide;
} lltm_step_backward_arguments;

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
  // Fills in the plan for forward (backward = 0) or backward (1). The environment variable
  // LLTM_LAYER_KERNELS, read at every call, forces a family by its name, for tests: "fallback" is
  // family 0; a name that is not known, or whose family cannot run the problem, is an error.
  const char* (*layer_plan)(lltm_dtype, int32_t backward, const lltm_layer_sizes*,
                            const lltm_execution*, lltm_layer_plan*);
  // With the family and the workspace of a plan for the same sizes, never family 0.
  const char* (*layer_forward)(lltm_dtype, int32_t family, const lltm_layer_forward_arguments*,
                               const lltm_execution*);
  const char* (*layer_backward)(lltm_dtype, int32_t family, const lltm_layer_backward_arguments*,
                                const lltm_execution*);
  const char* (*layer_cells)(lltm_dtype, const lltm_layer_cells_arguments*, const lltm_execution*);
  // What cell_backward needs where d_bias is wanted. NULL in a table whose cell_backward makes no
  // d_bias: the caller takes column_sum.
  int64_t (*cell_backward_workspace)(lltm_dtype, int64_t batch_size, int64_t state_size,
                                     const lltm_execution*);
  // Fills in the plan for forward (`needs` < 0), or for backward with these gradients wanted, as in
  // the mask of the operator. NULL where there are no kernels for whole steps.
  const char* (*step_plan)(lltm_dtype, int32_t needs, const lltm_step_sizes*, const lltm_execution*,
                           lltm_step_plan*);
  // With the family and the workspace of a plan for the same sizes, never family 0.
  const char* (*step_forward)(lltm_dtype, int32_t family, const lltm_step_forward_arguments*,
                              const lltm_execution*);
  const char* (*step_backward)(lltm_dtype, int32_t family, const lltm_step_backward_arguments*,
                               const lltm_execution*);
} lltm_kernel_functions;

const lltm_kernel_functions* lltm_cpu_kernels(void);
const lltm_kernel_functions* lltm_cuda_kernels(void);

#ifdef __cplusplus
}
#endif

#endif  // LLTM_KERNELS_H_
