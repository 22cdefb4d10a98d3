// The types that kernels and glue of every op share: where a kernel runs, and its table's head.
// This file is C without torch, since kernels include it.
#pragma once

#include <stdint.h>

#include "../project.h"

#define PROJECT_EXPORT __attribute__((visibility("default")))

typedef void (*PROJECT_SYMBOL(range_function))(int64_t begin, int64_t end, void* context);

// Calls `function` on disjoint ranges that cover [begin, end), possibly on several threads.
typedef void (*PROJECT_SYMBOL(parallel_for))(int64_t begin, int64_t end, int64_t grain_size,
                                             PROJECT_SYMBOL(range_function) function,
                                             void* context);

// torch's cuBLAS handle for the current device and stream, with a workspace, and in the mode that
// torch's flags ask for; NULL if there is none.
typedef void* (*PROJECT_SYMBOL(blas_handle))(void);

// Where a kernel runs: a CUDA device and stream, or the caller's CPU thread pool.
typedef struct {
  int32_t device_index;
  void* stream;                               // cudaStream_t; NULL is the legacy default stream
  PROJECT_SYMBOL(parallel_for) parallel_for;  // CPU kernels only
  PROJECT_SYMBOL(blas_handle) blas_handle;    // CUDA kernels only; NULL where torch gives none
} PROJECT_SYMBOL(execution);

// The first member of the table of functions that a kernels object gives.
typedef struct {
  uint32_t abi;        // the kernel ABI of the kernels
  uint32_t byte_size;  // of the whole table
  const char* device;  // "cpu" or "cuda"
} PROJECT_SYMBOL(table_head);

// Defines the function that gives the kernels' table: PROJECT_KERNEL_TABLE(cpu) { return &table; }
// Only a separate kernels object exports it; CMake and torch.utils.cpp_extension link kernels and
// glue into one object.
#if defined(PROJECT_LINKED_CPU) || defined(PROJECT_LINKED_CUDA)
#define PROJECT_KERNEL_TABLE(device) \
  extern "C" const void* PROJECT_SYMBOL(device##_kernel_table)(void)
#else
#define PROJECT_KERNEL_TABLE(device) \
  extern "C" PROJECT_EXPORT const void* PROJECT_SYMBOL(kernel_table)(void)
#endif
