// What the glue calls: the interface between it and the kernels of each device. Free of torch.
#pragma once

#include "torchship/kernel_table.h"

// Raise it with every change of what follows.
#define OWN_OP_KERNEL_ABI 1

typedef struct {
  int32_t dtype;  // torch's code for the type of all tensors
  int64_t rows, columns;
  double eps;
  const void *x, *weight;  // (rows, columns), (columns)
  void* y;                 // forward: x * rsqrt(mean(x^2) + eps) * weight
  const void* dy;          // backward: the gradient of y, and
  void *dx, *dweight;      // those of x and weight
  void* workspace;
} own_op_arguments;

// Each function returns NULL, or the text of an error.
typedef struct {
  own_op_table_head head;
  const char* (*forward)(const own_op_arguments*, const own_op_execution*);
  // Bytes of memory that `backward` works in.
  int64_t (*workspace)(const own_op_arguments*, const own_op_execution*);
  const char* (*backward)(const own_op_arguments*, const own_op_execution*);
} own_op_kernel_functions;
