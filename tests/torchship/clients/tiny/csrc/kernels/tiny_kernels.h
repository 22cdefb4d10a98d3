// The interface between this client's glue and its kernels: one function.
#pragma once

#include "torchship/kernel_table.h"

#define TINY_KERNEL_ABI 41

typedef struct {
  tiny_table_head head;
  const char* (*scale)(const float* values, int64_t count, double factor, float* scaled,
                       const tiny_execution* where);
} tiny_kernel_functions;
