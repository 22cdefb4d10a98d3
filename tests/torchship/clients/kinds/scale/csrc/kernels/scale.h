// What the operator calls: the interface between it and the kernels. Free of torch.
#pragma once

#include "torchship/kernel_table.h"

// Raise it with every change of what follows.
#define SCALE_KERNEL_ABI 1

namespace PROJECT_NAMESPACE {

using Execution = PROJECT_SYMBOL(execution);  // a CUDA stream, or the CPU's threads

struct Arguments {
  int32_t dtype;  // torch's code for the type of x and y
  int64_t count;  // of their elements
  double factor;
  const void* x;
  void* y;
};

struct Kernels {
  PROJECT_SYMBOL(table_head) head;  // the number, the table's size, the device
  const char* (*scale)(const Arguments*, const Execution*);  // NULL, or an error's text
};

}  // namespace PROJECT_NAMESPACE
