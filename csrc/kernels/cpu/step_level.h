// The kernels for whole steps of one instruction set and dtype: see step_vectors.h.
#pragma once

#include "../lltm_kernels.h"

namespace lltm {

// What the threads of a step's backward share.
struct StepShared {
  void* dz;           // NULL when only rows of weights and bias are wanted: then a thread's own
  const void* right;  // NULL when `weights` wants no gradient
};

// Each function that computes works on units [begin, end). Sizes of memory are in bytes.
struct StepKernels {
  int64_t (*forward_units)(const lltm_step_sizes&);
  int64_t (*forward_scratch)(const lltm_step_sizes&);  // of each thread
  void (*forward)(const lltm_step_forward_arguments&, void* scratch, int64_t begin, int64_t end);
  int64_t (*right_units)(const lltm_step_sizes&);
  int64_t (*right_size)(const lltm_step_sizes&);
  void (*pack_right)(const lltm_step_backward_arguments&, void* right, int64_t begin, int64_t end);
  int64_t (*backward_units)(const lltm_step_sizes&);
  int64_t (*dz_size)(const lltm_step_sizes&);
  int64_t (*own_dz_size)(const lltm_step_sizes&);
  void (*backward)(const lltm_step_backward_arguments&, const StepShared&, void* own_dz,
                   int64_t begin, int64_t end);
  int64_t (*left_units)(const lltm_step_backward_arguments&);
  int64_t (*left_scratch)(const lltm_step_sizes&);  // of each thread
  void (*backward_left)(const lltm_step_backward_arguments&, const void* dz, void* scratch,
                        int64_t begin, int64_t end);
};

}  // namespace lltm
