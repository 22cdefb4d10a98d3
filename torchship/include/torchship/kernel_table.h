// The types that kernels and glue of every op share: where a kernel runs, and the head of the table
// of kernels. Kernels include this file, so it does not include torch; it is C, because kernels and
// glue may come from different compilers.
#pragma once

#include <stdint.h>

#include "project.h"

#define PROJECT_EXPORT __attribute__((visibility("default")))

typedef void (*PROJECT_SYMBOL(range_function))(int64_t begin, int64_t end, void* context);

// Calls `function` on disjoint ranges that cover [begin, end), possibly on several threads.
typedef void (*PROJECT_SYMBOL(parallel_for))(int64_t begin, int64_t end, int64_t grain_size,
                                             PROJECT_SYMBOL(range_function) function,
                                             void* context);

// Returns torch's cuBLAS handle for the current device and stream, or NULL if torch has none. The
// handle has a workspace, and the mode that torch's flags ask for.
typedef void* (*PROJECT_SYMBOL(blas_handle))(void);

// Where a kernel runs: a CUDA device and stream, or the caller's CPU thread pool.
typedef struct {
  int32_t device_index;
  void* stream;                               // cudaStream_t; NULL is the legacy default stream
  PROJECT_SYMBOL(parallel_for) parallel_for;  // CPU kernels only
  PROJECT_SYMBOL(blas_handle) blas_handle;    // CUDA kernels only; NULL where torch gives none
} PROJECT_SYMBOL(execution);

// The head of a kernels object's table of functions: the first member of the table.
typedef struct {
  uint32_t abi;        // the kernel ABI that the kernels were compiled for
  uint32_t byte_size;  // size of the whole table
  const char* device;  // "cpu" or "cuda"
} PROJECT_SYMBOL(table_head);

// Defines the function that returns the kernels' table:
//
//   PROJECT_KERNEL_TABLE(cpu) { return &table; }
//
// A separate kernels object exports this function. Builds with CMake or torch.utils.cpp_extension
// link kernels and glue into one object, which does not export the function.
#if defined(PROJECT_LINKED_CPU) || defined(PROJECT_LINKED_CUDA)
#define PROJECT_KERNEL_TABLE(device) \
  extern "C" const void* PROJECT_SYMBOL(device##_kernel_table)(void)
#else
#define PROJECT_KERNEL_TABLE(device) \
  extern "C" PROJECT_EXPORT const void* PROJECT_SYMBOL(kernel_table)(void)
#endif
