// What the glue calls: the interface between it and the kernels of each device. Free of torch.
#pragma once

#include "torchship/kernel_table.h"

// Raise it with every change of what follows.
#define RMS_NORM_KERNEL_ABI 1

namespace PROJECT_NAMESPACE {

using Execution = PROJECT_SYMBOL(execution);

struct Arguments {
  int32_t dtype;  // torch's code for the type of all tensors
  int64_t rows, columns;
  double eps;
  const void *x, *weight;  // (rows, columns), (columns)
  void* y;                 // forward: x * rsqrt(mean(x^2) + eps) * weight
  const void* dy;          // backward: the gradient of y, and
  void *dx, *dweight;      // those of x and weight
  void* workspace;
};

// Each function returns NULL, or the text of an error.
struct Kernels {
  PROJECT_SYMBOL(table_head) head;
  const char* (*forward)(const Arguments*, const Execution*);
  // Bytes of memory that `backward` works in.
  int64_t (*workspace)(const Arguments*, const Execution*);
  const char* (*backward)(const Arguments*, const Execution*);
};

}  // namespace PROJECT_NAMESPACE
