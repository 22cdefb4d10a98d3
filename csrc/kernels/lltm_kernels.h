// The C interface between the glue, which knows torch, and the kernels, which do not.
//
// Kernels are compiled for the CPU and for each CUDA major version, and glue for each torch ABI. At
// run time, the glue gets the kernels' functions from a table. So any glue works with any kernels
// of the same LLTM_KERNEL_ABI, unless their table has too few members for the glue.
#ifndef LLTM_KERNELS_H_
#define LLTM_KERNELS_H_

#include "torchship/kernel_table.h"

#ifdef __cplusplus
extern "C" {
#endif

// Increase this number with every change of a type below, except new members at the end of the
// table.
#define LLTM_KERNEL_ABI 12
#define LLTM_MOST_SPLIT_K 4
#define LLTM_MOST_PARTS 5

// torch's codes, which are part of its serialisation format and do not change.
typedef enum {
  LLTM_FLOAT16 = 5,
  LLTM_FLOAT32 = 6,
  LLTM_FLOAT64 = 7,
  LLTM_BFLOAT16 = 15,
} lltm_dtype;

// The position of a dtype in the list above, for arrays.
static inline int lltm_dtype_index(lltm_dtype dtype) {
  return dtype == LLTM_BFLOAT16 ? 3 : (int)dtype - (int)LLTM_FLOAT16;
}

static inline int64_t lltm_dtype_bytes(lltm_dtype dtype) {
  return dtype == LLTM_FLOAT64 ? 8 : dtype == LLTM_FLOAT32 ? 4 : 2;
}

typedef enum { LLTM_FORWARD = 0, LLTM_BACKWARD = 1 } lltm_pass;

// Bits of a mask of the gradients that backward has to compute.
enum {
  LLTM_NEEDS_INPUT = 1,
  LLTM_NEEDS_WEIGHTS = 2,
  LLTM_NEEDS_BIAS = 4,
  LLTM_NEEDS_OLD_H = 8,
  LLTM_NEEDS_OLD_CELL = 16,
  LLTM_NEEDS_ALL = 31,
};

// Over a sequence, cell states and their gradients are running sums. A 16-bit running sum loses
// small addends, so the loop over steps keeps a float32 copy of the states, and float32 gradients.
// Outside that loop, and for float32 and float64, this struct and the next are all zero.
typedef struct {
  const void* old_cell;  // (B, S), float32: read instead of old_cell; or NULL
  void* new_cell;        // (B, S), float32: written in addition to new_cell; or NULL
} lltm_running_cell;

// A field is 1 if the gradient of its name is float32 while the other tensors have 16 bits.
typedef struct {
  int32_t more_grad_cell;
  int32_t d_old_cell;
} lltm_float32_gradients;

// Strides, in elements, of the rows and columns of grad_h and grad_cell. Often these gradients are
// one expanded number, because the loss is a sum. Only CUDA kernels read the strides, and only if
// `given` is 1; otherwise both tensors are contiguous.
typedef struct {
  int32_t given;
  int64_t grad_h[2];
  int64_t grad_cell[2];
} lltm_gradient_strides;

// sums[column] = sum over rows of matrix[row][column]: the gradient of a bias.
typedef struct {
  int64_t rows;
  int64_t columns;
  const void* matrix;  // (rows, columns)
  void* sums;          // (columns), written
} lltm_column_sum_arguments;

// Copies planes (matrices) of from_rows by from_columns elements to planes of to_rows by to_columns
// elements. Rows and columns that only `from` has are left out; those that only `to` has become
// zero. The columns of a row are contiguous.
typedef struct {
  const void* from;
  void* to;
  int64_t planes;
  int64_t from_rows;
  int64_t to_rows;
  int64_t from_columns;
  int64_t to_columns;
  int64_t from_stride;  // elements between rows of `from`
  int64_t to_stride;    // elements between rows of `to`
} lltm_copy;

#define LLTM_MOST_COPIES 13

// A whole sequence of steps: one layer in one direction. The caller makes the products that batch
// over time: x W_x^T before forward, and d_input and d_weights from d_gates after backward, or
// after each of its parts. The caller also sums d_bias.

typedef struct {
  int64_t steps;          // T >= 1
  int64_t batch_size;     // B
  int64_t state_size;     // S
  int64_t weight_stride;  // elements between rows of weights: S + I
  int32_t reverse;        // 1: from t = T - 1 down to 0
  int32_t allow_tf32;     // 1: products of float32 may be rounded to tf32
} lltm_layer_sizes;

// The quickest way to run a sequence: by a family of these kernels, or by family 0 ("gemm"), a loop
// over steps in the caller. The caller ignores fields that do not apply.
typedef struct {
  int32_t family;           // 0: gemm; otherwise a number that only these kernels know
  int64_t workspace_bytes;  // size of the workspace, which is aligned to 16 bytes
  // 1: `product` makes the products that batch over time; 0: torch does.
  int32_t calls_product;
  // Forward, 1: the product x W_x^T adds the bias; 0: the kernels add the bias.
  int32_t product_adds_bias;
  // Backward by gemm: the first step of each part of the sequence, the last part first. The loop
  // runs backwards and ends a part with this step. The caller then makes its products over time.
  int64_t part_starts[LLTM_MOST_PARTS];
  // Not 0: copies of the operands, padded with zeros to these S and I, are quicker. The added units
  // of the state stay zero. The caller then ignores the other fields, and asks for a plan for the
  // padded sizes.
  int64_t padded_state;
  int64_t padded_input;
} lltm_layer_plan;

// The tensors are contiguous and have one dtype.
typedef struct {
  lltm_layer_sizes sizes;
  const void* weights;       // (3S, S + I), columns of h first
  const void* bias;          // (3S): added to gates; NULL if there is none, or gates contain it
  const void* initial_h;     // (B, S), or NULL for zeros
  const void* initial_cell;  // (B, S), or NULL for zeros
  void* gates;               // (T, B, 3, S): x W_x^T in, the pre-activations out
  void* output;              // (T, B, S): h_t, written
  void* cells;               // (T, B, S): c_t, written; or NULL if they are not needed
  void* final_h;             // (B, S): h after the last step, written
  void* final_cell;          // (B, S): c after the last step, written
  void* workspace;
} lltm_layer_forward_arguments;

typedef struct {
  lltm_layer_sizes sizes;
  const void* weights;          // as in forward
  const void* grad_output;      // (T, B, S); NULL means zero, here and in the next three
  const void* grad_cells;       // (T, B, S) or NULL
  const void* grad_final_h;     // (B, S) or NULL
  const void* grad_final_cell;  // (B, S) or NULL
  const void* gates;            // (T, B, 3, S): pre-activations
  const void* cells;            // (T, B, S)
  void* d_gates;                // (T, B, 3, S), written
  void* d_initial_h;            // (B, S), written unless NULL
  void* d_initial_cell;         // (B, S), written unless NULL
  void* workspace;
} lltm_layer_backward_arguments;

// A sequence's cell states from its gates, as in forward: c_t = c_{t-1} + elu(z_c) sigmoid(z_i).
typedef struct {
  lltm_layer_sizes sizes;
  const void* initial_cell;  // (B, S), or NULL for zeros
  const void* gates;         // (T, B, 3, S): pre-activations
  void* cells;               // (T, B, S), written
} lltm_layer_cells_arguments;

// One whole step with its products.

typedef struct {
  int64_t batch_size;     // B
  int64_t input_size;     // I; may be 0
  int64_t state_size;     // S
  int64_t weight_stride;  // elements between rows of weights: S + I
  // 1: a GEMM may round float32 operands to tf32. Layers set this field; a single step takes it
  // from its plan, for which torch's flag decides.
  int32_t allow_tf32;
} lltm_step_sizes;

// The quickest way to run a step: by a family of these kernels, or by family 0 ("gemm"), the
// caller's GEMM with pointwise_forward or pointwise_backward. Fields that do not apply are 0.
typedef struct {
  int32_t family;           // 0: gemm; otherwise a number that only these kernels know
  int64_t workspace_bytes;  // size of the workspace, which is aligned to 16 bytes; 0 for gemm
  // Backward by a family, 1: the family recomputes gates that are NULL.
  int32_t makes_gates;
  // Backward by gemm in a sequence, if `product` makes d_z W_h: the caller divides the depth 3S
  // into this number of equal slices, except for d_initial_h; 0 means 1. The product of each slice
  // is a plane, a matrix of its own, and the next call of pointwise_backward adds up the planes.
  int32_t split_k;
  // By gemm in a sequence, 1: `product` makes the products, on CUDA if torch gives a cuBLAS handle.
  int32_t calls_product;
  // In a single step by a family, the `allow_tf32` of its sizes. Asking torch takes the host
  // microseconds, so only the plan asks.
  int32_t allow_tf32;
} lltm_step_plan;

// to = left right, or with `adds` to += left right, for each of `planes` planes, the matrices of a
// batch. Strides are in elements: x_stride between rows of x, x_plane between planes of x.
typedef struct {
  int64_t planes;
  int64_t rows;
  int64_t columns;
  int64_t depth;
  const void* left;  // (rows, depth), or transposed: (depth, rows)
  int64_t left_stride;
  int64_t left_plane;
  const void* right;  // (depth, columns), or transposed: (columns, depth)
  int64_t right_stride;
  int64_t right_plane;
  void* to;  // (rows, columns)
  int64_t to_stride;
  int64_t to_plane;
  int32_t left_transposed;
  int32_t right_transposed;
  int32_t adds;
  int32_t allow_tf32;
  void* blas_handle;  // from the function blas_handle of lltm_execution
} lltm_product_arguments;

// The arguments of one step. step_forward and step_backward run the whole step; pointwise_forward
// and pointwise_backward run its pointwise part, without the products. In the comments, "step:"
// marks what only the whole step uses, and "pointwise:" what only the pointwise part uses.
//
// All tensors have one dtype, except those in `running` and those that `float32` marks. They are
// contiguous, except for gaps between rows of `weights`, and grad_h and grad_cell with `strides`.
// pointwise_forward on CUDA does not read `bias`: the gates that it gets must contain the bias.
typedef struct {
  lltm_step_sizes sizes;
  const void* input;          // step: (B, I)
  const void* weights;        // step: (3S, S + I), columns of h first; rows `weight_stride` apart
  const void* bias;           // (3S): added; NULL if there is none, or gates contain it
  const void* old_h;          // step: (B, S)
  const void* old_cell;       // (B, S)
  int32_t gates_hold_addend;  // step: 1: the contents of gates are added to the products
  void* gates;                // (B, 3, S): the pre-activations out; pointwise: products in
  void* new_h;                // (B, S), written
  void* new_cell;             // (B, S), written
  void* workspace;            // step
  lltm_running_cell running;
} lltm_step_forward_arguments;

typedef struct {
  lltm_step_sizes sizes;
  const void* grad_h;      // (B, S); NULL means zero, here and in the next two
  const void* grad_cell;   // (B, S) or NULL
  const void* grad_gates;  // (B, 3, S) or NULL
  // Added to grad_h and grad_cell: the gradients from the next step of a sequence, or of the final
  // states.
  const void* more_grad_h;     // (B, S) or NULL; pointwise: or more_grad_h_planes of it
  const void* more_grad_cell;  // (B, S) or NULL
  const void* input;           // step: this and the next three as in forward
  const void* weights;
  const void* bias;  // read only if gates are recomputed
  const void* old_h;
  const void* new_cell;  // (B, S)
  const void* gates;     // (B, 3, S): pre-activations; or NULL if the plan says makes_gates
  void* d_gates;         // (B, 3, S), written; step: written unless NULL
  void* d_input;         // step: (B, I), written unless NULL, like the next four
  void* d_weights;       // step: (3S, S + I), rows without gaps
  void* d_bias;          // step: (3S)
  void* d_old_h;         // step: (B, S)
  void* d_old_cell;      // (B, S)
  void* workspace;       // step
  lltm_gradient_strides strides;
  lltm_float32_gradients float32;
  // pointwise: the number of planes of more_grad_h, which are added up: at most the plan's split_k.
  // 0 means 1.
  int32_t more_grad_h_planes;
} lltm_step_backward_arguments;

// The functions below return NULL, or a text that says what failed. The text is valid until the
// thread's next call of one of them.
//
// A plan says how to run a problem; only the kernels know what is quicker on their device. `needs`
// is the mask of the gradients to compute, 0 for forward. The environment variables
// LLTM_CPU_PRODUCTS, LLTM_CUDA_CELL and LLTM_LAYER_KERNELS force a family by its name, for tests.
// An unknown name is an error. If the family cannot run the problem, that is an error with
// LLTM_LAYER_KERNELS, but with LLTM_CUDA_CELL another family runs. A function with the parameter
// `family` takes that of a plan, except gemm, and the plan's workspace.
typedef struct {
  lltm_table_head head;  // with LLTM_KERNEL_ABI
  const char* (*pointwise_forward)(lltm_dtype, const lltm_step_forward_arguments*,
                                   const lltm_execution*);
  const char* (*pointwise_backward)(lltm_dtype, const lltm_step_backward_arguments*,
                                    const lltm_execution*);
  const char* (*column_sum)(lltm_dtype, const lltm_column_sum_arguments*, const lltm_execution*);
  const char* (*layer_plan)(lltm_dtype, lltm_pass, const lltm_layer_sizes*, const lltm_execution*,
                            lltm_layer_plan*);
  const char* (*layer_forward)(lltm_dtype, int32_t family, const lltm_layer_forward_arguments*,
                               const lltm_execution*);
  const char* (*layer_backward)(lltm_dtype, int32_t family, const lltm_layer_backward_arguments*,
                                const lltm_execution*);
  const char* (*layer_cells)(lltm_dtype, const lltm_layer_cells_arguments*, const lltm_execution*);
  const char* (*step_plan)(lltm_dtype, lltm_pass, int32_t needs, const lltm_step_sizes*,
                           const lltm_execution*, lltm_step_plan*);
  const char* (*step_forward)(lltm_dtype, int32_t family, const lltm_step_forward_arguments*,
                              const lltm_execution*);
  const char* (*step_backward)(lltm_dtype, int32_t family, const lltm_step_backward_arguments*,
                               const lltm_execution*);
  // This function and the next are NULL if no plan of these kernels needs them.
  const char* (*product)(lltm_dtype, const lltm_product_arguments*, const lltm_execution*);
  // Makes `count` copies, at most LLTM_MOST_COPIES.
  const char* (*copy)(lltm_dtype, int32_t count, const lltm_copy*, const lltm_execution*);
} lltm_kernel_functions;

#ifdef __cplusplus
}
#endif

#endif  // LLTM_KERNELS_H_
